-- Write, change or remove a cron job.
-- uses: calls, cron
-- keys: caller?, call, side_effects?, sent?, jobs, due
-- args: epoch?, turn?, call_ms, note?, note_ms, job_id, before?, job?, due_ms?, most
-- → as in the prelude: its id, or nothing if there was none to remove
--   changed: the job is another one than before; full: there are so many
local answered = answer_call(keys, args)
if answered then return answered end
-- What removes a job makes room.
if args.job then
  local refused = count_call(keys, args, 1)
  if refused then return refused end
end
local job = redis.call('HGET', keys.jobs, args.job_id) or nil
if job ~= args.before then return {'changed', ''} end
if args.job and not job and redis.call('HLEN', keys.jobs) >= tonumber(args.most) then return {'full', ''} end
set_job(keys, args.job_id, args.job)
set_due(keys, args.job_id, args.due_ms)
return end_call(keys, args, (job or args.job) and args.job_id or '')
