-- Stop everything that a session has accepted so far, whether it runs or waits, and all that it has
-- started. What is stopped that way has no result: it is not awaited any more.
-- uses: replies, asks, sessions
-- keys: state, inbound, call?
-- args: sid, is_unwanted, keep_ms
-- → entries concerned; for a call that was answered before, as then; session key, queue if a hint is
--   due, else nothing
local seen = keys.call and redis.call('GET', keys.call)
if seen then return {tonumber(seen), '', ''} end
local is_postponed = redis.call('HEXISTS', keys.state, 'postponed_until_ms') == 1
local count = stop_one(args.sid, keys.state, keys.inbound, args.is_unwanted == '1') + stop_below(args.sid)
if keys.call then redis.call('SET', keys.call, count, 'PX', args.keep_ms) end
return {count, redis.call('HGET', keys.state, 'key') or '', is_postponed and queue_if_scheduled(keys.state) or ''}
