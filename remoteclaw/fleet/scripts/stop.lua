-- Stop everything that a session has accepted so far, whether it runs or waits, and all that it has
-- started. What is stopped that way has no result: nobody waits for it any more.
-- KEYS state, inbound, the call that asks for it (perhaps)
-- ARGV sid, 1 if its own result isn't wanted either, how long the call is remembered ms
-- → entries concerned; for a call that was answered before, as then; session key, queue if a hint is
--   due, else nothing
local seen = KEYS[3] and redis.call('GET', KEYS[3])
if seen then return {tonumber(seen), '', ''} end
local is_postponed = redis.call('HEXISTS', KEYS[1], 'not_before') == 1
local count = stop_one(ARGV[1], KEYS[1], KEYS[2], ARGV[2] == '1') + stop_below(ARGV[1])
if KEYS[3] then redis.call('SET', KEYS[3], count, 'PX', ARGV[3]) end
return {count, key_of(KEYS[1]), is_postponed and queue_if_scheduled(KEYS[1]) or ''}
