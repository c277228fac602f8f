-- Record that the running turn reads what others have written.
-- keys: state
-- args: epoch, turn
local fence = fenced_turn(keys.state, args)
if fence then return fence end
redis.call('HSET', keys.state, 'web_turn', args.turn)
return 1
