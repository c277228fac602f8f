-- End the turn: its outcome, its last messages and the removal of its entries are one step.
-- KEYS state, inbound, reply stream, RQ queue
-- ARGV epoch, turn, attempt, status, outcome ms, outcome prefix, done channel, reply, error,
--      parked agent (JSON, or nothing), first index, payload …
-- → entries left, hints that wait
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local running = redis.call('HMGET', KEYS[1], 'turn', 'batch', 'published', 'finished')
local waiting = redis.call('LLEN', KEYS[4])
if running[1] ~= ARGV[2] then
  if running[4] == ARGV[2] then return {redis.call('XLEN', KEYS[2]), waiting} end  -- said before
  return redis.error_reply('FENCED turn ' .. ARGV[2] .. ' is not running')
end
local now = now_ms()
for _, id in ipairs(split(running[2])) do
  local outcome = ARGV[6] .. id
  redis.call('XDEL', KEYS[2], id)
  redis.call('HSET', outcome, 'status', ARGV[4], 'finished', now, 'attempts', ARGV[3])
  if ARGV[8] ~= '' then redis.call('HSET', outcome, 'reply', ARGV[8]) end
  if ARGV[9] ~= '' then redis.call('HSET', outcome, 'error', ARGV[9]) end
  redis.call('PEXPIRE', outcome, ARGV[5])
  redis.call('PUBLISH', ARGV[7], id)
end
local published, first = tonumber(running[3]), tonumber(ARGV[11])
for position = 12, #ARGV do
  if first + position - 12 >= published then
    redis.call('XADD', KEYS[3], '*', 'reply', ARGV[position])
  end
end
redis.call('HDEL', KEYS[1], 'turn', 'batch', 'attempt', 'phase', 'begun', 'before', 'published',
  'forgiven')
redis.call('HSET', KEYS[1], 'finished', ARGV[2], 'agent_process', ARGV[10])
return {redis.call('XLEN', KEYS[2]), waiting}
