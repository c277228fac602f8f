-- Set a setting of a session's own, or remove it.
-- keys: state
-- args: session_key, field, value?, keep_ms
-- → nothing
if not args.value then
  redis.call('HDEL', keys.state, args.field)
  return ''
end
if redis.call('HSETNX', keys.state, 'key', args.session_key) == 1 then
  redis.call('PEXPIRE', keys.state, args.keep_ms)
end
redis.call('HSET', keys.state, args.field, args.value)
return ''
