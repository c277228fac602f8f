-- Record how a run of a cron job ended, and update the job.
-- Of several schedulers that settle the same run, only the first does; for the others the run is no longer open.
-- uses: replies, cron
-- keys: cron_jobs, cron_due, cron_open, cron_job_runs, cron_runs, replies
-- args: run_name, run, job_id, before?, after?, next_ms?, max_runs, max_all_runs, runs_ms, missed?, line,
--   reply?
--   before, after: the job before and after, as JSON, left out if there is none; missed: the due times without a run
-- → done|changed|settled
if redis.call('HGET', keys.cron_open, args.run_name) ~= args.run then return 'settled' end
if (redis.call('HGET', keys.cron_jobs, args.job_id) or nil) ~= args.before then return 'changed' end
redis.call('HDEL', keys.cron_open, args.run_name)
note_run(keys, args, args.line)
if args.missed then note_run(keys, args, ' ' .. args.missed) end
if args.after ~= args.before then
  set_job(keys, args.job_id, args.after)
  set_due(keys, args.job_id, args.next_ms)
end
if args.reply then put_reply(keys.replies, args.reply) end
return 'done'
