-- Put a dead letter's message back on its session's stream, once, even if the call is repeated.
-- uses: entries
-- keys: dead_letters, inbound, state, active, sessions, retried, outcome, bell?
-- args: letter, sid, grace_ms, session_key, keep_ms
-- result: status, entry_id, queue
--   status: accepted|full|unknown: the dead letter doesn't exist; queue: for the hint that is due, if any
local letter = redis.call('XRANGE', keys.dead_letters, args.letter, args.letter)[1]
if not letter then
  local new_id = redis.call('GET', keys.retried)  -- a repeated call
  return result{status = new_id and 'accepted' or 'unknown', entry_id = new_id}
end
if is_full_for('messages') then return result{status = 'full'} end
local fields = {}
for position = 1, #letter[2], 2 do fields[letter[2][position]] = letter[2][position + 1] end
args.entry, args.lane = fields.entry, fields.lane or 'agents'
local id, queue = accept(keys, args)
redis.call('XDEL', keys.dead_letters, args.letter)
-- If the message was the one that names a task's run, or the last one of the run, the new entry takes its place.
local run, retried, last = unpack(redis.call('HMGET', keys.state, 'task_entry', 'retried_entry', 'last_task_entry'))
local field = fields.id == last and 'last_task_entry' or fields.id == (retried or run) and 'retried_entry'
if field then
  redis.call('HSET', keys.state, field, id)
  redis.call('HDEL', keys.state, 'reported_entry')  -- the run will have another result
end
redis.call('SET', keys.retried, id, 'PX', args.keep_ms)
local outcome = keys.outcome .. fields.id
if redis.call('EXISTS', outcome) == 1 then
  redis.call('HSET', outcome, 'retried', now_ms() .. ' as ' .. id)
end
return result{status = 'accepted', entry_id = id, queue = queue}
