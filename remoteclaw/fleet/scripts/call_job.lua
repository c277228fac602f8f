-- Add, change or remove a cron job.
-- uses: calls, cron
-- keys: caller_state?, call, caller_side_effects?, sent?, cron_jobs, cron_due
-- args: epoch?, turn?, call_ms, effect?, effect_ms, job_id, before?, job?, due_ms?, max_jobs
-- result: status, values
--   before, job: the job before and after, as JSON; left out if there is none
--   values: is_done: false if there was no job to remove; changed: the job isn't the same as `before`; full: there are too
--   many jobs
local answered = answer_call(keys, args)
if answered then return answered end
-- Removing a job needs no room.
if args.job then
  local refused = count_call(keys, args, 1)
  if refused then return refused end
end
local job = redis.call('HGET', keys.cron_jobs, args.job_id) or nil
if job ~= args.before then return result{status = 'changed'} end
if args.job and not job and redis.call('HLEN', keys.cron_jobs) >= tonumber(args.max_jobs) then
  return result{status = 'full'}
end
set_job(keys, args.job_id, args.job)
set_due(keys, args.job_id, args.due_ms)
return end_call(keys, args, {is_done = (job or args.job) ~= nil})
