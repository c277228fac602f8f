-- Take entries into the running turn, before its agent is told of them: if that goes wrong, the next
-- attempt is about them as well.
-- KEYS state, inbound; ARGV epoch, turn, outcome prefix, entry id … → 1 if they are taken
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local turn, attempt, steered, stop = unpack(redis.call('HMGET', KEYS[1], 'turn', 'attempt', 'steered',
  'stop'))
if turn ~= ARGV[2] or id_at_most(turn, stop) then return 0 end
local now, taken, is_taken = now_ms(), split(steered or ''), {}
for _, id in ipairs(taken) do is_taken[id] = true end
for position = 4, #ARGV do
  local id = ARGV[position]
  if not is_taken[id] then
    taken[#taken + 1] = id
    redis.call('HSET', ARGV[3] .. id, 'status', 'running', 'turn', turn, 'steered.' .. attempt, now)
  end
end
redis.call('HSET', KEYS[1], 'steered', table.concat(taken, ','))
return 1
