-- Keep (or, with an empty id, drop) the CLI's session id for a runtime and workspace.
-- keys: state, session_map
-- args: epoch, name, session_id?, keep_ms
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if not args.session_id then
  redis.call('HDEL', keys.session_map, args.name)
  redis.call('HDEL', keys.state, 'has_remembered')
else
  redis.call('HSET', keys.session_map, args.name, args.session_id)
  redis.call('HSET', keys.state, 'has_remembered', 1)
  redis.call('PEXPIRE', keys.session_map, args.keep_ms)
end
return 1
