-- Record where the running turn is about to start a terminal: whoever has the session next ends it first.
-- keys: state
-- args: epoch, turn, place, outcomes, detail
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local turn, attempt = unpack(redis.call('HMGET', keys.state, 'turn', 'attempt'))
if args.turn ~= turn then return redis.error_reply('FENCED turn ' .. args.turn .. ' is not running') end
redis.call('HSET', keys.state, 'terminal', args.place, 'phase', 'spawned')
redis.call('HSET', args.outcomes .. turn, 'spawned.' .. attempt, now_ms() .. ' ' .. args.detail)
return 1
