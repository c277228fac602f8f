-- Accept the opening of a terminal, which is an entry like any other, unless a terminal is open or a limit is reached.
-- A postponed batch is kept, and the terminal opens meanwhile.
-- uses: entries, kept
-- keys: inbound, state, active, sessions, seen, terminals, record, opens
-- args: sid, entry, grace_ms, dedupe_ms, outcomes, session_key, lane, by, host, max_on_host, max_per_person,
--   per_minute, burst, fields, keep_ms
--   fields: the first fields of the record, as JSON
-- → accepted|duplicate|open|ending|full|host|person|rate, entry id or nothing, queue if a hint is due, else nothing,
--   ms to wait
local seen = redis.call('GET', keys.seen)
if seen then return {'duplicate', seen, queue_if_scheduled(keys.state), 0} end
local opening, turn, held, owner, until_ms = unpack(redis.call('HMGET', keys.state, 'terminal_entry', 'turn', 'held',
  'worker', 'lease_until_ms'))
if opening then
  -- It ends, and is not settled yet, if it was stopped, or if its holder no longer has the lease.
  local has_ended = held and turn == opening and (owner ~= held or tonumber(until_ms) <= now_ms())
  local status = (has_ended or is_stopped(keys.state, opening)) and 'ending' or 'open'
  return {status, opening, queue_if_scheduled(keys.state), 0}
end
if is_full_for('messages') then return {'full', '', '', 0} end
-- Count the open terminals. The keys of other sessions can't be given to a script.
local on_host, of_person = 0, 0
for _, sid in ipairs(redis.call('ZRANGE', keys.terminals, 0, -1)) do
  if redis.call('HEXISTS', 'rc:st:{' .. sid .. '}', 'terminal_entry') == 0 then
    redis.call('ZREM', keys.terminals, sid)
  else
    local host, by = unpack(redis.call('HMGET', 'rc:tty:{' .. sid .. '}', 'host', 'by'))
    if host == args.host then on_host = on_host + 1 end
    if by == args.by then of_person = of_person + 1 end
  end
end
if on_host >= tonumber(args.max_on_host) then return {'host', '', '', 0} end
if of_person >= tonumber(args.max_per_person) then return {'person', '', '', 0} end
-- A token bucket with room for `burst` terminals, refilled at `per_minute`.
local now, burst = now_ms(), tonumber(args.burst)
local each_ms = 60000 / tonumber(args.per_minute)
local left, since = unpack(redis.call('HMGET', keys.opens, 'left', 'since_ms'))
left = math.min(burst, (tonumber(left) or burst) + (now - (tonumber(since) or now)) / each_ms)
if left < 1 then return {'rate', '', '', math.ceil((1 - left) * each_ms)} end
redis.call('HSET', keys.opens, 'left', left - 1, 'since_ms', now)
redis.call('PEXPIRE', keys.opens, math.ceil(burst * each_ms))
local is_free = keep_batch(keys.state)
local id, queue = accept(keys, args)
if is_free then
  queue = queue_if_scheduled(keys.state)
  redis.call('ZADD', keys.active, now + args.grace_ms, args.sid)
end
redis.call('HSET', keys.state, 'terminal_entry', id)
redis.call('ZADD', keys.terminals, now, args.sid)
-- The new terminal continues the conversation of the last one. If it can't start, the conversation is still recorded.
local conversation, where = unpack(redis.call('HMGET', keys.record, 'conversation', 'where'))
redis.call('DEL', keys.record)
if conversation and where then
  redis.call('HSET', keys.record, 'conversation', conversation, 'where', where)
end
for name, value in pairs(cjson.decode(args.fields)) do redis.call('HSET', keys.record, name, value) end
redis.call('HSET', keys.record, 'host', args.host, 'by', args.by, 'entry', id, 'opened_ms', now, 'since_ms', now)
redis.call('PEXPIRE', keys.record, args.keep_ms)
redis.call('SET', keys.seen, id, 'PX', args.dedupe_ms)
redis.call('PUBLISH', 'rc:tty', args.sid)
return {'accepted', id, queue, 0}
