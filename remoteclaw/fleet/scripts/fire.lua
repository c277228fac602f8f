-- Run a cron job that is due: put its message on its session's stream, record the run, and set the next due time.
-- Of several schedulers that fire the same due time, only the first does; for the others the due time has changed.
-- uses: entries, cron
-- keys: jobs, due, runs, all_runs, open?, inbound?, state?, active?, sessions?
-- args: job_id, before, due_ms, after, next_ms?, max_runs, max_all_runs, runs_ms, missed?, run_name?, run?,
--   entry?, sid?, grace_ms?, outcomes?, session_key?, lane?, bell?
--   before, after: the job before and after, as JSON; missed: the due times without a run; run: left out for no run
-- → done|changed|full, entry id, queue if a hint is due, else nothing
local job, due = redis.call('HGET', keys.jobs, args.job_id), redis.call('ZSCORE', keys.due, args.job_id)
local is_current = job == args.before and tonumber(due) == tonumber(args.due_ms)
if not is_current then return {'changed', '', ''} end
local id, queue = '', ''
if args.run then
  if is_full_for('messages') then return {'full', '', ''} end
  id, queue = accept(keys, args)
  redis.call('HSET', keys.open, args.run_name, args.outcomes .. id .. ' ' .. args.run)
end
if args.missed then note_run(keys, args, ' ' .. args.missed) end
redis.call('HSET', keys.jobs, args.job_id, args.after)
set_due(keys, args.job_id, args.next_ms)
return {'done', id, queue}
