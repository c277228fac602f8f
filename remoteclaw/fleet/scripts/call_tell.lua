-- Send a message to a task: an entry from the session that has started it. If a result of the task is awaited, that
-- result covers this message, too. Otherwise the message begins another run of the task, with a result of its own.
-- uses: entries, sessions, calls
-- keys: caller?, call, side_effects?, sent?, inbound, state, active, sessions, children
-- args: epoch?, turn?, call_ms, note?, note_ms, sid, entry, grace_ms, outcomes, session_key, lane, bell?, max_children,
--   root, max_below, known_ms
-- → as in _calls.lua: running|waiting|continued, the entry that names the run, entry id, queue if a hint is due,
--   else nothing; running: a turn runs, which may take the message up; continued: a new run begins
--   unknown: the session is no task; cancelled; dead: its last message is a dead letter; full: the number of unfinished
--   tasks; too many: the number of unfinished sessions below the root, which is the head of the tree
local over = begin_call(keys, args, 1)
if over then return over end
local run, retried, last, reported, unwanted, status, turn = unpack(redis.call('HMGET', keys.state, 'task_entry',
  'retried_entry', 'told_entry', 'reported_entry', 'unwanted_entry', 'status', 'turn'))
if not run then return {'unknown', ''} end
if id_at_most(last or run, unwanted) then return {'cancelled', ''} end
if redis.call('HGET', args.outcomes .. (last or retried or run), 'status') == 'dead' then return {'dead', ''} end
local is_reported, is_running = run == reported, status == 'running' and turn
if is_reported then
  local _, busy = idle_and_busy(keys.children)
  if busy >= tonumber(args.max_children) then return {'full', tostring(busy)} end
  local below = unfinished_below(args.root)
  if below >= tonumber(args.max_below) then return {'too many', tostring(below)} end
end
if is_reported or not is_running then args.bell = nil end
local id, queue = accept(keys, args)
if is_reported then
  redis.call('HSET', keys.state, 'task_entry', id)
  redis.call('HDEL', keys.state, 'retried_entry', 'told_entry')
  redis.call('ZADD', keys.children, 'XX', now_ms(), args.sid)
  redis.call('PEXPIRE', keys.children, args.known_ms)
  return end_call(keys, args, 'continued', id, id, queue)
end
redis.call('HSET', keys.state, 'told_entry', id)
return end_call(keys, args, is_running and 'running' or 'waiting', run, id, queue)
