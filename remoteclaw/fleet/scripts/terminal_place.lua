-- Record where the running turn is about to start a terminal, so that the session's next owner can end it first.
-- keys: state, outcome
-- args: epoch, turn, place, detail
local fence = fenced_turn(keys.state, args)
if fence then return fence end
local turn, attempt = args.turn, redis.call('HGET', keys.state, 'attempt')
redis.call('HSET', keys.state, 'terminal', args.place, 'phase', 'spawned')
redis.call('HSET', keys.outcome .. turn, 'spawned.' .. attempt, now_ms() .. ' ' .. args.detail)
return 1
