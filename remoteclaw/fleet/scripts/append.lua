-- Accept a message: recognize a repetition, store the message, and schedule the session if it is idle, in one step.
-- uses: replies, requests, entries, sessions
-- keys: inbound, state, active, sessions, outcome, bell, known*, blobs*
-- args: sid, entry, grace_ms, dedupe_ms, session_key, lane, effect?, title?, is_new?, digests*
-- result: status, entry_id, queue
--   known: what is known of the message, or of each message that it was joined from; digests: of their contents
--   effect: stop|wake, at once; title: the beginning of the message; is_new: whether it begins a new conversation
--   status: accepted|duplicate|joined|full|crowded|incomplete; queue: for the hint that is due, if any
--   joined: only some of the messages were accepted before
local repeated = {}
for _, known in ipairs(keys.known) do repeated[#repeated + 1] = redis.call('GET', known) or nil end
if #repeated > 0 and #repeated < #keys.known then return result{status = 'joined'} end
if repeated[1] then
  -- The first caller may have died before it sent the hint, so a session that waits gets another one.
  return result{status = 'duplicate', entry_id = string.match(repeated[1], '^%S+'),
    queue = queue_if_scheduled(keys.state)}
end
if args.effect ~= 'stop' and is_full_for('messages') then return result{status = 'full'} end
-- A stop has extra room, because it makes room.
local room = args.effect == 'stop' and 2 or 1
if redis.call('XLEN', keys.inbound) >= MAX_WAITING * room or bytes_of(keys.inbound) > MAX_WAITING_BYTES * room then
  return result{status = 'crowded'}
end
for _, blob in ipairs(keys.blobs) do
  if redis.call('EXISTS', blob) == 0 then return result{status = 'incomplete'} end
end
local is_postponed = redis.call('HEXISTS', keys.state, 'postponed_until_ms') == 1
if args.effect == 'stop' then
  args.stopped = stop_session(args.sid, keys.state, keys.inbound)
  stop_below(args.sid)
elseif args.effect == 'wake' then
  wake(args.sid, keys.state)
end
local id, queue = accept(keys, args)
if is_postponed then queue = queue_if_scheduled(keys.state) end
for _, blob in ipairs(keys.blobs) do redis.call('PERSIST', blob) end
if args.is_new == '1' then redis.call('HDEL', keys.state, 'title') end
if args.title then redis.call('HSETNX', keys.state, 'title', args.title) end
local part = #keys.known > 1 and ' part' or ''
for number, known in ipairs(keys.known) do
  redis.call('SET', known, id .. ' ' .. args.digests[number] .. part, 'PX', args.dedupe_ms)
end
return result{status = 'accepted', entry_id = id, queue = queue}
