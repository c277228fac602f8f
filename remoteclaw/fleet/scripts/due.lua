-- Find the cron jobs that are due, and say that a scheduler looks.
-- keys: due, jobs, scheduler
-- args: most, there_ms, skipped
-- → now ms, then of each: id, when it was due ms, job
local now = now_ms()
redis.call('SET', keys.scheduler, 1, 'PX', args.there_ms)
local due = redis.call('ZRANGEBYSCORE', keys.due, '-inf', now, 'WITHSCORES', 'LIMIT', args.skipped, args.most)
local found = {now}
for position = 1, #due, 2 do
  local job = redis.call('HGET', keys.jobs, due[position])
  if job then
    for _, part in ipairs({due[position], due[position + 1], job}) do found[#found + 1] = part end
  else
    redis.call('ZREM', keys.due, due[position])
  end
end
return found
