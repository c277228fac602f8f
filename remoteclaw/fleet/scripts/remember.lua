-- Store a CLI's conversation under its name, or remove it.
-- keys: state, session_map
-- args: epoch, name, conversation?, keep_ms
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if not args.conversation then
  redis.call('HDEL', keys.session_map, args.name)
  redis.call('HDEL', keys.state, 'has_remembered')
else
  redis.call('HSET', keys.session_map, args.name, args.conversation)
  redis.call('HSET', keys.state, 'has_remembered', 1)
  redis.call('PEXPIRE', keys.session_map, args.keep_ms)
end
return 1
