-- The agent does not wait for an answer any more.
-- uses: replies, asks
-- keys: state, ask
-- args: epoch, turn, id, words
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local state, turn = unpack(redis.call('HMGET', keys.ask, 'state', 'turn'))
if args.turn ~= turn then return 0 end
if state == 'open' or state == 'answered' then close_ask(args.id, 'void', args.words) end
return 1
