-- Let a turn wait for another session's, if a worker stays that can run it, and if that one doesn't
-- wait for this turn's session itself.
-- KEYS turns that wait, by when they stop to at the latest ms: session, turn, session that is waited
--      for, and what is unique
-- ARGV name, how long ms, workers that can run the other turn, their host (nothing: all)
-- → free|full|circle
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local function state_of(sid) return 'rc:st:{' .. sid .. '}' end
local own, _, target = string.match(ARGV[1], '^(%x+) (%S+) (%x+) ')
local waits_for, count = {}, 0
local function takes_worker(sid)
  return ARGV[4] == '' or redis.call('HGET', state_of(sid), 'host') == ARGV[4]
end
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local sid, turn, other = string.match(name, '^(%x+) (%S+) (%x+) ')
  if redis.call('HGET', state_of(sid), 'turn') ~= turn then
    redis.call('ZREM', KEYS[1], name)  -- its turn is over, whoever still waits
  else
    waits_for[sid] = waits_for[sid] or {}
    table.insert(waits_for[sid], other)
    if takes_worker(sid) then count = count + 1 end
  end
end
local reached, next_one = {[target] = true}, {target}
while next_one[1] do
  local sid = table.remove(next_one)
  if sid == own then return 'circle' end
  for _, other in ipairs(waits_for[sid] or {}) do
    if not reached[other] then
      reached[other] = true
      next_one[#next_one + 1] = other
    end
  end
end
if takes_worker(own) then count = count + 1 end
if count >= tonumber(ARGV[3]) then return 'full' end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
return 'free'
