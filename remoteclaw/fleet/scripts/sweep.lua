-- Find the sessions whose hint was lost or whose owner is gone, and schedule the next check of each session.
-- keys: active, sessions, sweeper, requests, rq_queues, cron_due, cron_open
-- args: retry_ms, max_count, longest_ms, patient_checks, long_checks, listed_ms, alive_ms, late_ms
--   retry_ms, longest_ms: the shortest and longest pause between two checks of a
--   session; patient_checks: the number of checks for which a session waits for its host; long_checks: the number of
--   checks after which its wait is reported; late_ms: a host that counts as gone within this time has missed its beats
-- result: has_overdue, has_deserted, has_cron_work, hints
--   has_overdue: whether the time of a request is over; has_deserted: whether a queue's host is gone; has_cron_work:
--   whether a cron job is due or a run is not settled
-- row: sid, why, session_key, queue, waited_ms
--   why: expired|moved|scheduled, empty for no hint; waited_ms: how long it has waited, if that is to be reported
local queues, has_deserted = redis.call('SMEMBERS', keys.rq_queues), false
for position, queue in ipairs(queues) do queues[position] = string.sub(queue, #'rq:queue:' + 1) end

-- The shortest queue of a lane's hosts that have a worker; nil without one.
local function quietest_host_queue(lane)
  local found, shortest
  for _, name in ipairs(queues) do
    if string.sub(name, 1, #lane + 1) == lane .. '@' and redis.call('EXISTS', 'rc:host:' .. name) == 1 then
      local length = redis.call('LLEN', 'rq:queue:' .. name)
      if not shortest or length < shortest then found, shortest = name, length end
    end
  end
  return found
end

local now = now_ms()
redis.call('SET', keys.sweeper, now, 'PX', args.alive_ms)
redis.call('ZREMRANGEBYSCORE', keys.sessions, '-inf', now - args.listed_ms)
local due = redis.call('ZRANGEBYSCORE', keys.active, '-inf', now, 'LIMIT', 0, args.max_count)
local found = {}
for _, sid in ipairs(due) do
  local key = 'rc:state:{' .. sid .. '}'
  local held = redis.call('HMGET', key, 'status', 'lease_until_ms', 'key', 'sweeps', 'host',
    'postponed_until_ms')
  local status, checks, host = held[1], tonumber(held[4] or 0), held[5]
  if not status then
    redis.call('ZREM', keys.active, sid)
  elseif status == 'running' and tonumber(held[2]) > now then
    redis.call('ZADD', keys.active, held[2] + args.retry_ms, sid)
  else
    local queue, why = queue_of(key), nil
    if status == 'running' then
      why = 'expired'
    elseif held[6] then
      -- It was postponed until now, so no queue has a hint for it.
      redis.call('HDEL', key, 'postponed_until_ms')
      why = 'scheduled'
    elseif host and not string.find(queue, '@', 1, true) then
      -- Its host is gone, and its hint may be in that host's queue. The next worker's host takes it over.
      redis.call('HDEL', key, 'host')
      why = 'moved'
    elseif checks == tonumber(args.patient_checks) and host then
      -- Its host has had no free worker for so long that any other worker may take it.
      redis.call('HDEL', key, 'host')
      queue, why = queue_of(key), 'moved'
    elseif not host and checks == 1 and quietest_host_queue(queue) then
      -- Workers serve the sessions of their host first. Under steady load, a session without a host would never have
      -- its turn, so it waits in line with those of a host.
      queue, why = quietest_host_queue(queue), 'scheduled'
    elseif checks % 10 == tonumber(args.patient_checks) or redis.call('LLEN', 'rq:queue:' .. queue) == 0 then
      -- While the queue has hints, one of them may be this session's, so most checks add no other.
      why = 'scheduled'
    end
    redis.call('HINCRBY', key, 'sweeps', 1)
    local wait_ms = args.retry_ms * 2 ^ math.min(checks, 10)
    local left_ms = host and redis.call('PTTL', 'rc:host:' .. queue) or -1
    if left_ms > 0 and left_ms < tonumber(args.late_ms) then wait_ms = math.min(wait_ms, left_ms + 1) end
    redis.call('ZADD', keys.active, now + math.min(wait_ms, tonumber(args.longest_ms)), sid)
    -- The first check is after `retry_ms`, and each pause is twice as long as the one before.
    local waited_ms = checks == tonumber(args.long_checks) and args.retry_ms * 2 ^ checks or nil
    if why or waited_ms then
      found[#found + 1] = row{sid = sid, why = why, session_key = held[3], queue = queue, waited_ms = waited_ms}
    end
  end
end
for _, name in ipairs(queues) do
  if string.find(name, '@', 1, true) and redis.call('EXISTS', 'rc:host:' .. name) == 0 then has_deserted = true end
end
local overdue = redis.call('ZRANGEBYSCORE', keys.requests, '-inf', now, 'LIMIT', 0, 1)
local due_jobs = redis.call('ZRANGEBYSCORE', keys.cron_due, '-inf', now, 'LIMIT', 0, 1)
return result{
  has_overdue = #overdue, has_deserted = has_deserted and 1 or 0,
  has_cron_work = #due_jobs + redis.call('HLEN', keys.cron_open), hints = found,
}
