-- Accept the opening of a terminal, which is an entry like any other, unless a terminal is open or a limit is reached.
-- A postponed batch is kept, and the terminal opens meanwhile.
-- uses: entries, kept
-- keys: inbound, state, active, sessions, seen, terminals, terminal, terminal_opens, outcome
-- args: sid, entry, grace_ms, dedupe_ms, session_key, lane, by, host, max_on_host, max_per_person, per_minute, burst,
--   fields, keep_ms
-- result: status, entry_id, queue, wait_ms
--   fields: the first fields of the record, as JSON
--   status: accepted|duplicate|open|ending|full|host|person|rate; queue: for the hint that is due, if any
local seen = redis.call('GET', keys.seen)
if seen then return result{status = 'duplicate', entry_id = seen, queue = queue_if_scheduled(keys.state)} end
local opening, turn, held, owner, until_ms = unpack(redis.call('HMGET', keys.state, 'terminal_entry', 'turn', 'held',
  'worker', 'lease_until_ms'))
if opening then
  -- It ends, and is not settled yet, if it was stopped, or if its holder no longer has the lease.
  local has_ended = held and turn == opening and (owner ~= held or tonumber(until_ms) <= now_ms())
  local status = (has_ended or is_stopped(keys.state, opening)) and 'ending' or 'open'
  return result{status = status, entry_id = opening, queue = queue_if_scheduled(keys.state)}
end
if is_full_for('messages') then return result{status = 'full'} end
-- Count the open terminals. The keys of other sessions can't be given to a script.
local on_host, of_person = 0, 0
for _, sid in ipairs(redis.call('ZRANGE', keys.terminals, 0, -1)) do
  if redis.call('HEXISTS', 'rc:state:{' .. sid .. '}', 'terminal_entry') == 0 then
    redis.call('ZREM', keys.terminals, sid)
  else
    local host, by = unpack(redis.call('HMGET', 'rc:terminal:{' .. sid .. '}', 'host', 'by'))
    if host == args.host then on_host = on_host + 1 end
    if by == args.by then of_person = of_person + 1 end
  end
end
if on_host >= tonumber(args.max_on_host) then return result{status = 'host'} end
if of_person >= tonumber(args.max_per_person) then return result{status = 'person'} end
-- A token bucket with room for `burst` terminals, refilled at `per_minute`.
local now, burst = now_ms(), tonumber(args.burst)
local each_ms = 60000 / tonumber(args.per_minute)
local left, since = unpack(redis.call('HMGET', keys.terminal_opens, 'left', 'since_ms'))
left = math.min(burst, (tonumber(left) or burst) + (now - (tonumber(since) or now)) / each_ms)
if left < 1 then return result{status = 'rate', wait_ms = math.ceil((1 - left) * each_ms)} end
redis.call('HSET', keys.terminal_opens, 'left', left - 1, 'since_ms', now)
redis.call('PEXPIRE', keys.terminal_opens, math.ceil(burst * each_ms))
local is_free = keep_batch(keys.state)
local id, queue = accept(keys, args)
if is_free then
  queue = queue_if_scheduled(keys.state)
  redis.call('ZADD', keys.active, now + args.grace_ms, args.sid)
end
redis.call('HSET', keys.state, 'terminal_entry', id)
redis.call('ZADD', keys.terminals, now, args.sid)
-- The new terminal continues the conversation of the last one. If it can't start, the conversation is still recorded.
local conversation, where = unpack(redis.call('HMGET', keys.terminal, 'conversation', 'where'))
redis.call('DEL', keys.terminal)
if conversation and where then
  redis.call('HSET', keys.terminal, 'conversation', conversation, 'where', where)
end
for name, value in pairs(cjson.decode(args.fields)) do redis.call('HSET', keys.terminal, name, value) end
redis.call('HSET', keys.terminal, 'host', args.host, 'by', args.by, 'entry', id, 'opened_ms', now, 'since_ms', now)
redis.call('PEXPIRE', keys.terminal, args.keep_ms)
redis.call('SET', keys.seen, id, 'PX', args.dedupe_ms)
redis.call('PUBLISH', 'rc:terminal-updates', args.sid)
return result{status = 'accepted', entry_id = id, queue = queue}
