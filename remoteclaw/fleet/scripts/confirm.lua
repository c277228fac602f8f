-- Say what became of a change that waited to be confirmed, unless something else did.
-- KEYS changes that wait
-- ARGV id, the change as it was, the change as it is now
-- → done|changed
local now = redis.call('HGET', KEYS[1], ARGV[1])
if now == ARGV[3] then return 'done' end
if now ~= ARGV[2] then return 'changed' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 'done'
