-- Begin a session with a copy of another session's conversation: the CLI's ids, each marked, and the record.
-- uses: copies
-- keys: state, session_map, record, new_state, new_session_map, new_record, sessions
-- args: new_sid, session_key, limits, keep_ms, mark, names*
-- → forked | exists | nothing
if redis.call('EXISTS', keys.new_state, keys.new_session_map, keys.new_record) > 0 then return 'exists' end
local copied, has_record = copy_conversation(
  {state = keys.state, session_map = keys.session_map, record = keys.record},
  {state = keys.new_state, session_map = keys.new_session_map, record = keys.new_record}, args)
if copied == 0 and not has_record then return 'nothing' end
-- With has_remembered but without an id, the session reports that it continues from its record only.
redis.call('HSET', keys.new_state, 'key', args.session_key, 'limits', args.limits, 'has_remembered', 1,
  'last_heard_ms', now_ms())
local model = redis.call('HGET', keys.state, 'model')  -- another one would read the copied conversation in no cache
if model then redis.call('HSET', keys.new_state, 'model', model) end
redis.call('PEXPIRE', keys.new_state, args.keep_ms)
redis.call('ZADD', keys.sessions, now_ms(), args.new_sid)
announce_sessions()
return 'forked'
