-- Accept a message: dedupe, store, note the time, and schedule an idle session, all or nothing.
-- KEYS inbound, state, seen, active, sessions, blob …
-- ARGV sid, entry, grace ms, dedupe ms, outcome prefix, session key, lane, bell,
--      the part of the server's memory beyond which nothing is accepted
-- → accepted|duplicate|full|incomplete, entry id, queue if a hint is due, else nothing
local seen = redis.call('GET', KEYS[3])
if seen then
  -- The first caller may have died before it could hint, so a session that waits is hinted again.
  local scheduled = redis.call('HGET', KEYS[2], 'state') == 'scheduled'
  return {'duplicate', seen, scheduled and queue_of(KEYS[2]) or ''}
end
if memory_used() > tonumber(ARGV[9]) then return {'full', '', ''} end
for position = 6, #KEYS do
  if redis.call('EXISTS', KEYS[position]) == 0 then return {'incomplete', '', ''} end
end
local keys = {inbound = KEYS[1], state = KEYS[2], active = KEYS[4], sessions = KEYS[5]}
local id, queue = accept(keys, ARGV[2], ARGV[1], ARGV[3], ARGV[5], ARGV[6], ARGV[7], ARGV[8])
for position = 6, #KEYS do redis.call('PERSIST', KEYS[position]) end
redis.call('SET', KEYS[3], id, 'PX', ARGV[4])
return {'accepted', id, queue}
