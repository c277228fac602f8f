-- Make waiting entries part of the running turn, before its agent is told of them.
-- KEYS state, inbound; ARGV epoch, turn, outcome prefix, entry ids → those that were still waiting
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local running = redis.call('HMGET', KEYS[1], 'turn', 'attempt', 'batch', 'steered', 'stop')
if running[1] ~= ARGV[2] then return {} end
local batch, steered, taken, known = running[3], running[4] or '', {}, {}
for _, id in ipairs(split(batch)) do known[id] = true end
local now = now_ms()
for _, id in ipairs(split(ARGV[4])) do
  if known[id] then
    taken[#taken + 1] = id  -- said before
  elseif redis.call('XRANGE', KEYS[2], id, id)[1] and not id_at_most(id, running[5]) then
    batch, steered = batch .. ',' .. id, steered == '' and id or steered .. ',' .. id
    redis.call('HSET', ARGV[3] .. id, 'status', 'running', 'turn', ARGV[2],
      'steered.' .. running[2], now)
    taken[#taken + 1] = id
  end
end
redis.call('HSET', KEYS[1], 'batch', batch, 'steered', steered)
return taken
