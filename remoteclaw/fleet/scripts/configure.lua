-- Set or remove a setting of one session.
-- keys: state
-- args: session_key, field, value?, keep_ms
-- → nothing
if args.value then
  redis.call('HSETNX', keys.state, 'key', args.session_key)
  redis.call('HSET', keys.state, args.field, args.value)
else
  redis.call('HDEL', keys.state, args.field)
end
local status, project = unpack(redis.call('HMGET', keys.state, 'status', 'project'))
if project then
  redis.call('PERSIST', keys.state)
elseif not status then
  redis.call('PEXPIRE', keys.state, args.keep_ms)
end
return ''
