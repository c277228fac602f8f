-- Find sessions whose hint was lost or whose owner is gone, and put off the next look at each.
-- KEYS active, sessions, sweeper
-- ARGV state prefix, retry ms, at most, longest wait ms, looks after which a long queue gets
--      another hint, 1 if leases may be taken for expired, how long sessions are listed ms,
--      how long this sweeper counts as there ms, lease ms
-- → sid, expired|moved|scheduled, session key, queue, …
local now, looked = now_ms(), redis.call('GET', KEYS[3])
redis.call('SET', KEYS[3], now, 'PX', ARGV[8])
if not looked or tonumber(looked) > now then
  -- The clock was set back, perhaps: nothing but a postponed session is due later than after a lease.
  local longest = now + ARGV[9]
  for _, sid in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], longest + ARGV[2] + 1, '+inf')) do
    local key = ARGV[1] .. '{' .. sid .. '}'
    local expires, not_before = unpack(redis.call('HMGET', key, 'expires', 'not_before'))
    if expires and tonumber(expires) > longest then redis.call('HSET', key, 'expires', longest) end
    if not not_before then redis.call('ZADD', KEYS[1], now, sid) end
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[7])
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[3])
local found = {}
for _, sid in ipairs(due) do
  local key = ARGV[1] .. '{' .. sid .. '}'
  local held = redis.call('HMGET', key, 'state', 'expires', 'key', 'swept', 'host',
    'not_before')
  local state, looks, host = held[1], tonumber(held[4] or 0), held[5]
  if not state then
    redis.call('ZREM', KEYS[1], sid)
  elseif state == 'running' and tonumber(held[2]) > now then
    redis.call('ZADD', KEYS[1], held[2] + ARGV[2], sid)
  else
    local queue, why = queue_of(key), nil
    if state == 'running' then
      if ARGV[6] == '1' then why = 'expired' end
    elseif held[6] then
      -- It was postponed until now, and has no hint in any queue.
      redis.call('HDEL', key, 'not_before')
      why = 'scheduled'
    elseif host and not string.find(queue, '@', 1, true) then
      -- Its host has gone, and its hint may lie in that host's queue. The next worker is its host.
      redis.call('HDEL', key, 'host')
      why = 'moved'
    elseif looks == tonumber(ARGV[5]) and host then
      -- Its host lives, and has no worker free for so long: whoever is free takes it.
      redis.call('HDEL', key, 'host')
      queue, why = queue_of(key), 'moved'
    elseif looks % 10 == tonumber(ARGV[5]) or redis.call('LLEN', 'rq:queue:' .. queue) == 0 then
      -- Otherwise its hint may be one of those that wait, and another would only swell them.
      why = 'scheduled'
    end
    redis.call('HINCRBY', key, 'swept', 1)
    local wait = ARGV[2] * 2 ^ math.min(looks, 10)
    redis.call('ZADD', KEYS[1], now + math.min(wait, tonumber(ARGV[4])), sid)
    if why then
      for _, part in ipairs({sid, why, held[3], queue}) do found[#found + 1] = part end
    end
  end
end
return found
