-- Accept a message: dedupe, store, note the time, and schedule an idle session, all or nothing.
-- uses: replies, asks, entries, sessions
-- keys: inbound, state, seen, active, sessions, blobs*
-- args: sid, entry, grace_ms, dedupe_ms, outcomes, session_key, lane, bell, at_once?, title?, is_new?
--   title: the first words of the message; is_new: whether a new conversation begins with it
-- → accepted|duplicate|full|crowded|incomplete, entry id, queue if a hint is due, else nothing
local MAX_WAITING, MAX_WAITING_BYTES = 1000, 4 * 1024 * 1024
local seen = redis.call('GET', keys.seen)
if seen then
  -- The first caller may have died before it could hint, so a session that waits is hinted again.
  return {'duplicate', seen, queue_if_scheduled(keys.state)}
end
if args.at_once ~= 'stop' and is_full_for('messages') then return {'full', '', ''} end
-- One session can't keep so much waiting that there is no room for the others. A stop has room of its own:
-- it is what makes some.
local room = args.at_once == 'stop' and 2 or 1
if redis.call('XLEN', keys.inbound) >= MAX_WAITING * room or bytes_of(keys.inbound) > MAX_WAITING_BYTES * room then
  return {'crowded', '', ''}
end
for _, blob in ipairs(keys.blobs) do
  if redis.call('EXISTS', blob) == 0 then return {'incomplete', '', ''} end
end
local is_postponed = redis.call('HEXISTS', keys.state, 'postponed_until_ms') == 1
if args.at_once == 'stop' then
  args.stopped = stop_one(args.sid, keys.state, keys.inbound)
  stop_below(args.sid)
elseif args.at_once == 'wake' then
  wake(args.sid, keys.state)
end
local id, queue = accept(keys, args)
if is_postponed then queue = queue_if_scheduled(keys.state) end
for _, blob in ipairs(keys.blobs) do redis.call('PERSIST', blob) end
if args.is_new == '1' then redis.call('HDEL', keys.state, 'title') end
if args.title then redis.call('HSETNX', keys.state, 'title', args.title) end
redis.call('SET', keys.seen, id, 'PX', args.dedupe_ms)
return {'accepted', id, queue}
