-- Gives up the lead; the token stays known. KEYS: leader. ARGV: owner.
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then
  redis.call('HSET', KEYS[1], 'end', '0')
end
return 1
