-- Put a dead letter back on its session's stream: once, also if this is asked again.
-- uses: entries
-- keys: dead_letters, inbound, state, active, sessions, retried
-- args: letter, sid, grace_ms, outcomes, session_key, bell?, keep_ms
-- → entry id, queue if a hint is due, else nothing; or nothing, when it is gone; or full
local letter = redis.call('XRANGE', keys.dead_letters, args.letter, args.letter)[1]
if not letter then
  local became = redis.call('GET', keys.retried)  -- the reply was lost, and it is asked again
  return became and {became, ''} or {}
end
if is_full_for('messages') then return {'full'} end
local fields = {}
for position = 1, #letter[2], 2 do fields[letter[2][position]] = letter[2][position + 1] end
args.entry, args.lane = fields.entry, fields.lane or 'agents'
local id, queue = accept(keys, args)
redis.call('XDEL', keys.dead_letters, args.letter)
local spawned, again, told = unpack(redis.call('HMGET', keys.state, 'task_entry', 'retried_entry', 'told_entry'))
local part = fields.id == told and 'told_entry' or fields.id == (again or spawned) and 'retried_entry'
if part then
  redis.call('HSET', keys.state, part, id)
  redis.call('HDEL', keys.state, 'reported_entry')  -- there will be another result
end
redis.call('SET', keys.retried, id, 'PX', args.keep_ms)
local outcome = args.outcomes .. fields.id
if redis.call('EXISTS', outcome) == 1 then
  redis.call('HSET', outcome, 'retried', now_ms() .. ' as ' .. id)
end
return {id, queue}
