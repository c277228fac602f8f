-- Take the reasons of denials that the agent has not received, for the next prompt. Each is reported in one turn, in all
-- of its attempts.
-- keys: state, unreported_denials
-- args: epoch, turn
-- row: request, answer
--   both as JSON
local fence = fenced_turn(keys.state, args)
if fence then return fence end
local found = {}
for _, id in ipairs(redis.call('HKEYS', keys.unreported_denials)) do
  local reporting_turn = redis.call('HGET', keys.unreported_denials, id)
  local request, answer = unpack(redis.call('HMGET', 'rc:request:' .. id, 'request', 'answer'))
  if (reporting_turn == '' or reporting_turn == args.turn) and answer then
    redis.call('HSET', keys.unreported_denials, id, args.turn)
    found[#found + 1] = row{request = request, answer = answer}
  else
    redis.call('HDEL', keys.unreported_denials, id)
  end
end
return found
