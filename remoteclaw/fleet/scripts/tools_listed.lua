-- Note that an agent process has asked for the list of its tools.
-- keys: state
-- args: digest
local grant = redis.call('HGET', keys.state, 'grant')
if grant and cjson.decode(grant).digest == args.digest then redis.call('HSET', keys.state, 'tools_listed', args.digest) end
return 1
