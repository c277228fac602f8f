-- End a lease whose owner is known to be dead, so that nobody waits for its time to pass.
-- KEYS state, active; ARGV epoch, sid, 1 if on purpose → 1 if it was still that owner's
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[1], 'state') ~= 'running' then return 0 end
if tonumber(redis.call('HGET', KEYS[1], 'expires')) == 0 then return 0 end  -- said before
redis.call('HSET', KEYS[1], 'expires', 0)
if ARGV[3] == '1' and redis.call('HEXISTS', KEYS[1], 'begun') == 1 then
  redis.call('HINCRBY', KEYS[1], 'forgiven', 1)
end
redis.call('ZADD', KEYS[2], 0, ARGV[2])
return 1
