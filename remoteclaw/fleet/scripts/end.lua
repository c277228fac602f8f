-- Have a session's conversation end: stop all that it has accepted so far, and put behind that the entry
-- which ends the conversation. The owner of the session obeys; sent again, this does nothing.
-- uses: entries, sessions
-- keys: inbound, state, active, sessions, seen
-- args: sid, entry, grace_ms, outcomes, session_key, bell, dedupe_ms
-- → entry id, queue if a hint is due, else nothing
local seen = redis.call('GET', keys.seen)
if seen then
  return {seen, queue_if_scheduled(keys.state)}
end
local is_postponed = redis.call('HEXISTS', keys.state, 'postponed_until_ms') == 1
stop_one(args.sid, keys.state, keys.inbound)
stop_below(args.sid)
args.lane = 'agents'
local id, queue = accept(keys, args)
if is_postponed then queue = queue_if_scheduled(keys.state) end
redis.call('SET', keys.seen, id, 'PX', args.dedupe_ms)
return {id, queue}
