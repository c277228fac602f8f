-- Send a message to a task: an entry from the session that has started it. If a result of the task is awaited, that
-- result covers this message, too. Otherwise the message begins another run of the task, with a result of its own.
-- uses: entries, sessions, calls
-- keys: caller_state?, call, caller_side_effects?, sent?, inbound, state, active, sessions, parent_children, outcome, bell?
-- args: epoch?, turn?, call_ms, effect?, effect_ms, sid, entry, grace_ms, session_key, lane, max_children, root, max_below,
--   known_ms
-- result: status, values
--   values: place: running|waiting|continued; run: the entry that names it; entry_id; queue for the hint that is due, if
--   any; running: a turn runs, which may take the message up; continued: a new run begins
--   unknown: the session is no task; cancelled; dead: its last message is a dead letter; full: `number` is that of
--   unfinished tasks; too many: `number` is that of unfinished sessions below the root, the head of the tree
local over = begin_call(keys, args, 1)
if over then return over end
local run, retried, last, reported, unwanted, status, turn = unpack(redis.call('HMGET', keys.state, 'task_entry',
  'retried_entry', 'last_task_entry', 'reported_entry', 'unwanted_entry', 'status', 'turn'))
if not run then return result{status = 'unknown'} end
if id_at_most(last or run, unwanted) then return result{status = 'cancelled'} end
if redis.call('HGET', keys.outcome .. (last or retried or run), 'status') == 'dead' then
  return result{status = 'dead'}
end
local is_reported, is_running = run == reported, status == 'running' and turn
if is_reported then
  local _, busy = idle_and_busy(keys.parent_children)
  if busy >= tonumber(args.max_children) then return result{status = 'full', values = cjson.encode{number = busy}} end
  local below = unfinished_below(args.root)
  if below >= tonumber(args.max_below) then
    return result{status = 'too many', values = cjson.encode{number = below}}
  end
end
if is_reported or not is_running then keys.bell = nil end
local id, queue = accept(keys, args)
if is_reported then
  redis.call('HSET', keys.state, 'task_entry', id)
  redis.call('HDEL', keys.state, 'retried_entry', 'last_task_entry')
  redis.call('ZADD', keys.parent_children, 'XX', now_ms(), args.sid)
  redis.call('PEXPIRE', keys.parent_children, args.known_ms)
  return end_call(keys, args, {place = 'continued', run = id, entry_id = id, queue = queue})
end
redis.call('HSET', keys.state, 'last_task_entry', id)
return end_call(keys, args, {place = is_running and 'running' or 'waiting', run = run, entry_id = id, queue = queue})
