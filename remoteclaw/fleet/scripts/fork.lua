-- Begin a session with a copy of what another one remembers: its conversation's ids, each marked,
-- and its record.
-- keys: state, session_map, record, new_state, new_map, new_record, sessions
-- args: sid, session_key, keep_ms, mark, names*
-- → forked | exists | nothing
if redis.call('EXISTS', keys.new_state, keys.new_map, keys.new_record) > 0 then return 'exists' end
local record = redis.call('GET', keys.record)
local running, finished = unpack(redis.call('HMGET', keys.state, 'turn', 'finished_turn'))
local copied = 0
for _, name in ipairs(args.names) do
  local id = redis.call('HGET', keys.session_map, name)
  -- In its first turn, there is nothing yet that could be copied.
  if id and (not running or finished) then
    local marked = string.sub(id, 1, #args.mark) == args.mark and id or args.mark .. id
    redis.call('HSET', keys.new_map, name, marked)
    copied = copied + 1
  end
end
if copied == 0 and not record then return 'nothing' end
if copied > 0 then redis.call('PEXPIRE', keys.new_map, args.keep_ms) end
if record then
  redis.call('SET', keys.new_record, record)
  local left = redis.call('PTTL', keys.record)
  if left > 0 then redis.call('PEXPIRE', keys.new_record, left) end
end
-- Without an id to go on with, the session says that it has notes alone.
redis.call('HSET', keys.new_state, 'key', args.session_key, 'has_remembered', 1, 'last_heard_ms', now_ms())
local host = redis.call('HGET', keys.state, 'host')
if host then redis.call('HSET', keys.new_state, 'host', host) end
local project = redis.call('HGET', keys.state, 'project')
if project then redis.call('HSET', keys.new_state, 'project', project) end
redis.call('PEXPIRE', keys.new_state, args.keep_ms)
redis.call('ZADD', keys.sessions, now_ms(), args.sid)
return 'forked'
