-- Add, change or remove a cron job.
-- uses: calls, cron
-- keys: caller?, call, side_effects?, sent?, jobs, due
-- args: epoch?, turn?, call_ms, note?, note_ms, job_id, before?, job?, due_ms?, max_jobs
--   before, job: the job before and after, as JSON; left out if there is none
-- → as in _calls.lua: the job's id, or nothing if it didn't exist; changed: the job isn't the same as `before`;
--   full: there are too many jobs
local answered = answer_call(keys, args)
if answered then return answered end
-- Removing a job needs no room.
if args.job then
  local refused = count_call(keys, args, 1)
  if refused then return refused end
end
local job = redis.call('HGET', keys.jobs, args.job_id) or nil
if job ~= args.before then return {'changed', ''} end
if args.job and not job and redis.call('HLEN', keys.jobs) >= tonumber(args.max_jobs) then return {'full', ''} end
set_job(keys, args.job_id, args.job)
set_due(keys, args.job_id, args.due_ms)
return end_call(keys, args, (job or args.job) and args.job_id or '')
