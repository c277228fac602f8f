-- Find sessions whose hint was lost or whose owner is gone, and put off the next look at each.
-- keys: active, sessions, sweeper
-- args: states, retry_ms, most, longest_ms, patient_looks, listed_ms, there_ms
-- → sid, expired|moved|scheduled, session key, queue, …
local now = now_ms()
redis.call('SET', keys.sweeper, now, 'PX', args.there_ms)
redis.call('ZREMRANGEBYSCORE', keys.sessions, '-inf', now - args.listed_ms)
local due = redis.call('ZRANGEBYSCORE', keys.active, '-inf', now, 'LIMIT', 0, args.most)
local found = {}
for _, sid in ipairs(due) do
  local key = args.states .. '{' .. sid .. '}'
  local held = redis.call('HMGET', key, 'status', 'lease_until_ms', 'key', 'sweeps', 'host',
    'postponed_until_ms')
  local state, looks, host = held[1], tonumber(held[4] or 0), held[5]
  if not state then
    redis.call('ZREM', keys.active, sid)
  elseif state == 'running' and tonumber(held[2]) > now then
    redis.call('ZADD', keys.active, held[2] + args.retry_ms, sid)
  else
    local queue, why = queue_of(key), nil
    if state == 'running' then
      why = 'expired'
    elseif held[6] then
      -- It was postponed until now, and has no hint in any queue.
      redis.call('HDEL', key, 'postponed_until_ms')
      why = 'scheduled'
    elseif host and not string.find(queue, '@', 1, true) then
      -- Its host has gone, and its hint may lie in that host's queue. The next worker is its host.
      redis.call('HDEL', key, 'host')
      why = 'moved'
    elseif looks == tonumber(args.patient_looks) and host then
      -- Its host lives, and has no worker free for so long: the next free worker takes it.
      redis.call('HDEL', key, 'host')
      queue, why = queue_of(key), 'moved'
    elseif looks % 10 == tonumber(args.patient_looks) or redis.call('LLEN', 'rq:queue:' .. queue) == 0 then
      -- Otherwise its hint may be one of those that wait, and another would only swell them.
      why = 'scheduled'
    end
    redis.call('HINCRBY', key, 'sweeps', 1)
    local wait = args.retry_ms * 2 ^ math.min(looks, 10)
    redis.call('ZADD', keys.active, now + math.min(wait, tonumber(args.longest_ms)), sid)
    if why then
      for _, part in ipairs({sid, why, held[3], queue}) do found[#found + 1] = part end
    end
  end
end
return found
