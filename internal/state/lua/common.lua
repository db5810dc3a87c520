-- What the scripts share; it is put before each of them. Redis has no libraries that 6.2 and Valkey both know.

-- now is the server's clock, in milliseconds, and in microseconds.
local function now()
  local time = redis.call('TIME')
  local us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  return math.floor(us / 1000), us
end

-- integer writes a number of at most 53 bits as Redis wants it.
local function integer(n)
  return string.format('%.0f', n)
end

-- drop_ended removes the members of a group whose lease has ended by ms.
local function drop_ended(ends, values, ms)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', integer(ms))) do
    redis.call('ZREM', ends, member)
    redis.call('HDEL', values, member)
  end
end
