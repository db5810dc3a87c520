-- Saves a value unless it was saved with a newer token. KEYS: blob, fence. ARGV: value, token, time to live in ms (0: none), for how long
-- a token is remembered beyond that, in ms. Returns 1 when the token is too old. Tokens are compared as text: they may have 64 bits.
local newest = redis.call('GET', KEYS[2])
if newest and (#newest > #ARGV[2] or (#newest == #ARGV[2] and newest > ARGV[2])) then
  return 1
end
local ttl = tonumber(ARGV[3])
if ttl > 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
  redis.call('SET', KEYS[2], ARGV[2], 'PX', integer(ttl + tonumber(ARGV[4])))
else
  redis.call('SET', KEYS[1], ARGV[1])
  redis.call('SET', KEYS[2], ARGV[2])
end
return 0
