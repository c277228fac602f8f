-- Store the grant of the one agent process that may call tools for a session.
-- keys: state
-- args: epoch, grant
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
redis.call('HSET', keys.state, 'grant', args.grant)
return 1
