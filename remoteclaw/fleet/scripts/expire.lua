-- End a lease whose owner is known to be dead, so that nobody waits for its time to pass.
-- KEYS state, active; ARGV epoch, sid → 1 if it was still that owner's
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[1], 'state') ~= 'running' then return 0 end
redis.call('HSET', KEYS[1], 'expires', 0)
redis.call('ZADD', KEYS[2], 0, ARGV[2])
return 1
