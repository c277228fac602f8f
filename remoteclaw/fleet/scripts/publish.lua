-- Put one message of an unfinished turn on the reply stream, once.
-- KEYS state, reply stream; ARGV epoch, turn, attempt, index, payload
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local running = redis.call('HMGET', KEYS[1], 'turn', 'attempt', 'published')
if running[1] ~= ARGV[2] or running[2] ~= ARGV[3] then
  return redis.error_reply('FENCED turn ' .. ARGV[2] .. ' is not running')
end
local published, index = tonumber(running[3]), tonumber(ARGV[4])
if index < published then return 0 end
put_reply(KEYS[2], ARGV[5])
redis.call('HSET', KEYS[1], 'published', index + 1)
return 1
