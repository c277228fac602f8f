-- Take what people have said to denials, for the next prompt: the agent did not hear it with them. It is told in one
-- turn, in each attempt at it.
-- keys: state, unheard
-- args: epoch, turn
-- → for each: the request and its answer, as JSON
local fence = fenced_turn(keys.state, args)
if fence then return fence end
local found = {}
for _, id in ipairs(redis.call('HKEYS', keys.unheard)) do
  local told = redis.call('HGET', keys.unheard, id)
  local request, answer = unpack(redis.call('HMGET', 'rc:ask:' .. id, 'request', 'answer'))
  if (told == '' or told == args.turn) and answer then
    redis.call('HSET', keys.unheard, id, args.turn)
    found[#found + 1] = {request, answer}
  else
    redis.call('HDEL', keys.unheard, id)
  end
end
return found
