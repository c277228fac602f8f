-- Record how far the attempt has come: after a crash it decides what may be repeated.
-- KEYS state; ARGV epoch, turn, phase, detail (for people), outcome prefix, agent (JSON, or nothing)
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local running = redis.call('HMGET', KEYS[1], 'turn', 'attempt', 'batch')
if running[1] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'phase', ARGV[3])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], 'agent_process', ARGV[6]) end
local detail = now_ms() .. (ARGV[4] ~= '' and ' ' .. ARGV[4] or '')
for _, id in ipairs(split(running[3])) do
  redis.call('HSET', ARGV[5] .. id, ARGV[3] .. '.' .. running[2], detail)
end
return 1
