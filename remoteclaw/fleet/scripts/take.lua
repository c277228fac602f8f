-- Take the answer to a request, before the agent receives it. From here on, the call may have been performed.
-- uses: replies, requests
-- keys: state, request, unreported_denials
-- args: epoch, turn, request_id, is_heard
-- result: state, answer
--   is_heard: whether the agent receives the reason of a denial together with it
--   state: `gone` if the request doesn't exist; answer: as JSON, if there is one
local fence = fenced_turn(keys.state, args)
if fence then return fence end
local turn, attempt = args.turn, redis.call('HGET', keys.state, 'attempt')
local state, answer = unpack(redis.call('HMGET', keys.request, 'state', 'answer'))
if state == 'answered' then
  state = 'given'
  redis.call('HSET', keys.request, 'state', state, 'given', attempt, 'given_turn', turn)
  keep_request(keys.request)
end
if state == 'given' and args.is_heard == '1' then redis.call('HDEL', keys.unreported_denials, args.request_id) end
return result{state = state or 'gone', answer = answer}
