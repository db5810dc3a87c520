-- Adds records to a stream, numbered without gaps. KEYS: log. ARGV: longest length, time to live in ms, the records.
local number = 0
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if last then
  number = tonumber(last[2][2])
end
for i = 3, #ARGV do
  number = number + 1
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'n', integer(number), 'v', ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
