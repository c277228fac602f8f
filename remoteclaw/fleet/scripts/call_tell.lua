-- Tell a task something: an entry of the session that has started it. While a result of the task is awaited, it
-- will be about this too. Otherwise the task goes on: a run of its own, with a result of its own.
-- uses: entries, sessions, calls
-- keys: caller?, call, side_effects?, sent?, inbound, state, active, sessions, children
-- args: epoch?, turn?, call_ms, note?, note_ms, sid, entry, grace_ms, outcomes, session_key, lane, bell?, most,
--   root, most_below, known_ms
-- → as in the prelude: running|waiting|continued, the entry that names the run, entry id, queue if a hint is due,
--   else nothing; running: a turn runs, which may take it in
--   unknown: it is no task; cancelled; dead: its last message is a dead letter; full: how many are unfinished; too many: how
--   many there are below the root, the session at the head of the tree
local over = begin_call(keys, args, 1)
if over then return over end
local run, again, told, reported, unwanted, status, turn = unpack(redis.call('HMGET', keys.state, 'task_entry',
  'retried_entry', 'told_entry', 'reported_entry', 'unwanted_entry', 'status', 'turn'))
if not run then return {'unknown', ''} end
if id_at_most(told or run, unwanted) then return {'cancelled', ''} end
if redis.call('HGET', args.outcomes .. (told or again or run), 'status') == 'dead' then return {'dead', ''} end
local goes_on, is_running = run == reported, status == 'running' and turn
if goes_on then
  local _, busy = idle_and_busy(keys.children)
  if busy >= tonumber(args.most) then return {'full', tostring(busy)} end
  local below = unfinished_below(args.root)
  if below >= tonumber(args.most_below) then return {'too many', tostring(below)} end
end
if goes_on or not is_running then args.bell = nil end
local id, queue = accept(keys, args)
if goes_on then
  redis.call('HSET', keys.state, 'task_entry', id)
  redis.call('HDEL', keys.state, 'retried_entry', 'told_entry')
  redis.call('ZADD', keys.children, 'XX', now_ms(), args.sid)
  redis.call('PEXPIRE', keys.children, args.known_ms)
  return end_call(keys, args, 'continued', id, id, queue)
end
redis.call('HSET', keys.state, 'told_entry', id)
return end_call(keys, args, is_running and 'running' or 'waiting', run, id, queue)
