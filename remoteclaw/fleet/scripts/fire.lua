-- Run a cron job that is due: put its message on its session's stream, record the run, and set the next due time.
-- Of several schedulers that fire the same due time, only the first does; for the others the due time has changed.
-- uses: entries, cron
-- keys: cron_jobs, cron_due, cron_job_runs, cron_runs, cron_open?, inbound?, state?, active?, sessions?, outcome?
-- args: job_id, before, due_ms, after, next_ms?, max_runs, max_all_runs, runs_ms, missed?, run_name?, run?, entry?,
--   sid?, grace_ms?, session_key?, lane?
-- result: status, entry_id, queue
--   before, after: the job before and after, as JSON; missed: the due times without a run; run: left out for no run
--   status: done|changed|full; queue: for the hint that is due, if any
local job, due = redis.call('HGET', keys.cron_jobs, args.job_id), redis.call('ZSCORE', keys.cron_due, args.job_id)
local is_current = job == args.before and tonumber(due) == tonumber(args.due_ms)
if not is_current then return result{status = 'changed'} end
local id, queue = '', ''
if args.run then
  if is_full_for('messages') then return result{status = 'full'} end
  id, queue = accept(keys, args)
  redis.call('HSET', keys.cron_open, args.run_name, keys.outcome .. id .. ' ' .. args.run)
end
if args.missed then note_run(keys, args, ' ' .. args.missed) end
redis.call('HSET', keys.cron_jobs, args.job_id, args.after)
set_due(keys, args.job_id, args.next_ms)
return result{status = 'done', entry_id = id, queue = queue}
