-- Find sessions whose hint was lost or whose owner is gone, and put off the next look at each.
-- KEYS active, RQ queue; ARGV state prefix, retry ms, at most, longest wait ms
-- → sid, expired|scheduled, session key, …
local now = now_ms()
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[3])
local queue_is_empty = redis.call('LLEN', KEYS[2]) == 0
local found = {}
for _, sid in ipairs(due) do
  local key = ARGV[1] .. '{' .. sid .. '}'
  local held = redis.call('HMGET', key, 'state', 'expires', 'key', 'swept')
  local wait = ARGV[2] * 2 ^ math.min(tonumber(held[4] or 0), 10)
  local next_look = now + math.min(wait, tonumber(ARGV[4]))
  if not held[1] then
    redis.call('ZREM', KEYS[1], sid)
  elseif held[1] == 'running' and tonumber(held[2]) > now then
    redis.call('ZADD', KEYS[1], held[2] + ARGV[2], sid)
  else
    redis.call('ZADD', KEYS[1], next_look, sid)
    -- A hint for a scheduled session may be one of many that wait: another would only swell them.
    if held[1] == 'running' or queue_is_empty then
      redis.call('HINCRBY', key, 'swept', 1)
      found[#found + 1] = sid
      found[#found + 1] = held[1] == 'running' and 'expired' or 'scheduled'
      found[#found + 1] = held[3]
    end
  end
end
return found
