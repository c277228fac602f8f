-- Accept a message: dedupe, store, note the time, and schedule an idle session, all or nothing.
-- KEYS inbound, state, seen, active, sessions, blob …
-- ARGV sid, entry, grace ms, dedupe ms, outcome prefix, session key, lane, bell,
--      what it does besides: stop (all that was accepted before), wake (a postponed session), or nothing
-- → accepted|duplicate|full|crowded|incomplete, entry id, queue if a hint is due, else nothing
local MOST_WAITING, MOST_WAITING_BYTES = 1000, 4 * 1024 * 1024
local seen = redis.call('GET', KEYS[3])
if seen then
  -- The first caller may have died before it could hint, so a session that waits is hinted again.
  return {'duplicate', seen, queue_if_scheduled(KEYS[2])}
end
if ARGV[9] ~= 'stop' and is_full_for('messages') then return {'full', '', ''} end
-- One session can't keep so much waiting that there is no room for the others. A stop has room of its own:
-- it is what makes some.
local room = ARGV[9] == 'stop' and 2 or 1
if redis.call('XLEN', KEYS[1]) >= MOST_WAITING * room or bytes_of(KEYS[1]) > MOST_WAITING_BYTES * room then
  return {'crowded', '', ''}
end
for position = 6, #KEYS do
  if redis.call('EXISTS', KEYS[position]) == 0 then return {'incomplete', '', ''} end
end
local keys = {inbound = KEYS[1], state = KEYS[2], active = KEYS[4], sessions = KEYS[5]}
local is_postponed, stopped, below = redis.call('HEXISTS', KEYS[2], 'not_before') == 1, nil, nil
if ARGV[9] == 'stop' then
  stopped, below = stop_one(ARGV[1], KEYS[2], KEYS[1]), stop_below(ARGV[1])
elseif ARGV[9] == 'wake' then
  wake(ARGV[1], KEYS[2])
end
local id, queue = accept(keys, ARGV[2], ARGV[1], ARGV[3], ARGV[5], ARGV[6], ARGV[7], ARGV[8], stopped, below)
if is_postponed then queue = queue_if_scheduled(KEYS[2]) end
for position = 6, #KEYS do redis.call('PERSIST', KEYS[position]) end
redis.call('SET', KEYS[3], id, 'PX', ARGV[4])
return {'accepted', id, queue}
