-- Take the answer to a request, before the agent hears of it: from here on, what was asked for may have been done.
-- keys: state, ask
-- args: epoch, turn
-- → state, `gone` if there is no record, answer as JSON or nothing
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local turn, attempt = unpack(redis.call('HMGET', keys.state, 'turn', 'attempt'))
if args.turn ~= turn then return redis.error_reply('FENCED turn ' .. args.turn .. ' is not running') end
local state, answer, keep_ms = unpack(redis.call('HMGET', keys.ask, 'state', 'answer', 'keep_ms'))
if state == 'answered' then
  state = 'given'
  redis.call('HSET', keys.ask, 'state', state, 'given', attempt, 'given_turn', turn)
  redis.call('PEXPIRE', keys.ask, keep_ms)
end
return {state or 'gone', answer or ''}
