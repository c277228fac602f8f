-- Find the cron jobs that are due, and record that a scheduler runs.
-- keys: cron_due, cron_jobs, cron_scheduler, cron_open
-- args: max_count, alive_ms, skipped
--   skipped: the number of due jobs to skip
-- result: now_ms, unsettled, jobs
--   unsettled: the number of runs that are not settled
-- row: id, due_ms, job
--   job: as JSON
local now = now_ms()
redis.call('SET', keys.cron_scheduler, 1, 'PX', args.alive_ms)
local due = redis.call('ZRANGEBYSCORE', keys.cron_due, '-inf', now, 'WITHSCORES', 'LIMIT', args.skipped, args.max_count)
local found = {}
for position = 1, #due, 2 do
  local job = redis.call('HGET', keys.cron_jobs, due[position])
  if job then
    found[#found + 1] = row{id = due[position], due_ms = due[position + 1], job = job}
  else
    redis.call('ZREM', keys.cron_due, due[position])
  end
end
return result{now_ms = now, unsettled = redis.call('HLEN', keys.cron_open), jobs = found}
