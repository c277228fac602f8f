-- Take the answer to a request, before the agent hears of it: from here on, what was asked for may have been done.
-- uses: replies, asks
-- keys: state, ask, unheard
-- args: epoch, turn, id, is_heard
--   is_heard: whether the agent hears with it what people say
-- → state, `gone` if there is no record, answer as JSON or nothing
local fence = fenced_turn(keys.state, args)
if fence then return fence end
local turn, attempt = args.turn, redis.call('HGET', keys.state, 'attempt')
local state, answer = unpack(redis.call('HMGET', keys.ask, 'state', 'answer'))
if state == 'answered' then
  state = 'given'
  redis.call('HSET', keys.ask, 'state', state, 'given', attempt, 'given_turn', turn)
  keep_ask(keys.ask)
end
if state == 'given' and args.is_heard == '1' then redis.call('HDEL', keys.unheard, args.id) end
return {state or 'gone', answer or ''}
