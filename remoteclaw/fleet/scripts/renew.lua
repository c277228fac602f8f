-- Hold the lease for longer, and learn of what an announcement may have failed to tell.
-- KEYS state, active; ARGV epoch, sid, lease ms, grace ms
-- → the id up to which all is stopped, the newest entry that a person has sent
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
-- It was given back, or postponed, while this was on its way.
if redis.call('HGET', KEYS[1], 'state') ~= 'running' then return {'', ''} end
local now = now_ms()
redis.call('HSET', KEYS[1], 'expires', now + ARGV[3])
redis.call('ZADD', KEYS[2], now + ARGV[3] + ARGV[4], ARGV[2])
local told = redis.call('HMGET', KEYS[1], 'stop', 'said')
return {told[1] or '', told[2] or ''}
