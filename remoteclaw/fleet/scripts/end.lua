-- Have a session's conversation end: stop all that it has accepted so far, and put behind that the entry
-- which ends the conversation. Whoever has or takes the session obeys, once however often it is asked.
-- KEYS inbound, state, active, sessions, seen
-- ARGV sid, entry, grace ms, outcome prefix, session key, bell, dedupe ms
-- → entry id, queue if a hint is due, else nothing
local seen = redis.call('GET', KEYS[5])
if seen then
  return {seen, queue_if_scheduled(KEYS[2])}
end
local is_postponed = redis.call('HEXISTS', KEYS[2], 'not_before') == 1
stop_one(ARGV[1], KEYS[2], KEYS[1])
stop_below(ARGV[1])
local keys = {inbound = KEYS[1], state = KEYS[2], active = KEYS[3], sessions = KEYS[4]}
local id, queue = accept(keys, ARGV[2], ARGV[1], ARGV[3], ARGV[4], ARGV[5], 'agents', ARGV[6])
if is_postponed then queue = queue_if_scheduled(KEYS[2]) end
redis.call('SET', KEYS[5], id, 'PX', ARGV[7])
return {id, queue}
