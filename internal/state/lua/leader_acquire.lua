-- Takes or renews the lead. KEYS: leader. ARGV: owner, time to live in ms, for how long a token is remembered, in ms.
-- Returns the token, "0" when somebody else leads.
local ms, us = now()
local known = redis.call('HMGET', KEYS[1], 'owner', 'token', 'end')
local token = tonumber(known[2] or '0')
if known[1] and tonumber(known[3]) > ms then
  if known[1] ~= ARGV[1] then
    return '0'
  end
else
  -- A time, so that tokens grow even when the server has forgotten the last one.
  token = math.max(token + 1, us)
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', integer(token), 'end', integer(ms + tonumber(ARGV[2])))
redis.call('PEXPIRE', KEYS[1], integer(tonumber(ARGV[2]) + tonumber(ARGV[3])))
return integer(token)
