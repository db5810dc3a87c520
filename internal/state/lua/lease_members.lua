-- Lists the members of a group whose lease runs. KEYS: ends, values. Returns name, value, time left in ms, one after the other.
local ms = now()
drop_ended(KEYS[1], KEYS[2], ms)
local values = {}
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  values[all[i]] = all[i + 1]
end
local members = {}
local ends = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #ends, 2 do
  local value = values[ends[i]]
  if value then -- else a server short of memory has evicted one of the two keys
    members[#members + 1] = ends[i]
    members[#members + 1] = value
    members[#members + 1] = integer(tonumber(ends[i + 1]) - ms)
  end
end
return members
