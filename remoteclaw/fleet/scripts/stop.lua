-- Stop everything that a session has accepted so far, running or waiting, and all sessions below it. With `is_unwanted`,
-- the session's result is no longer awaited; those of the sessions below it never are.
-- uses: replies, requests, sessions
-- keys: state, inbound, call?
-- args: sid, is_unwanted, keep_ms
-- result: count, session_key, queue
--   count: the number of stopped entries, as the first time for a repeated call; queue: for the hint that is due, if any
local seen = keys.call and redis.call('GET', keys.call)
if seen then return result{count = tonumber(seen)} end
local is_postponed = redis.call('HEXISTS', keys.state, 'postponed_until_ms') == 1
local count = stop_session(args.sid, keys.state, keys.inbound, args.is_unwanted == '1') + stop_below(args.sid)
if keys.call then redis.call('SET', keys.call, count, 'PX', args.keep_ms) end
return result{count = count, session_key = redis.call('HGET', keys.state, 'key'),
  queue = is_postponed and queue_if_scheduled(keys.state)}
