-- Put one message of an unfinished turn on the reply stream, once.
-- uses: replies
-- keys: state, replies
-- args: epoch, turn, attempt, index, payload
--   index: the number of the message in the turn, from 0
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local running = redis.call('HMGET', keys.state, 'turn', 'attempt', 'published_count')
if running[1] ~= args.turn or running[2] ~= args.attempt then
  return redis.error_reply('FENCED turn ' .. args.turn .. ' is not running')
end
local published, index = tonumber(running[3]), tonumber(args.index)
if index < published then return 0 end
put_reply(keys.replies, args.payload)
redis.call('HSET', keys.state, 'published_count', index + 1, 'said_ms', now_ms())
return 1
