-- Makes or renews a member of a group. KEYS: ends, values. ARGV: member, value, time to live in ms, most members.
-- Returns 0 when the group is full.
local ms = now()
drop_ended(KEYS[1], KEYS[2], ms)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then
  return 0
end
redis.call('ZADD', KEYS[1], integer(ms + tonumber(ARGV[3])), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
-- Both keys go with the lease that ends last.
local latest = integer(tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]))
redis.call('PEXPIREAT', KEYS[1], latest)
redis.call('PEXPIREAT', KEYS[2], latest)
return 1
