-- Find the cron jobs that are due, and record that a scheduler runs.
-- keys: due, jobs, scheduler
-- args: max_count, alive_ms, skipped
--   skipped: the number of due jobs to skip
-- → now ms, then for each job: id, when it was due ms, the job as JSON
local now = now_ms()
redis.call('SET', keys.scheduler, 1, 'PX', args.alive_ms)
local due = redis.call('ZRANGEBYSCORE', keys.due, '-inf', now, 'WITHSCORES', 'LIMIT', args.skipped, args.max_count)
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
