-- Begin a run of a cron job.
-- uses: entries, calls, cron
-- keys: caller_state?, call, caller_side_effects?, sent?, cron_jobs, cron_open, inbound, state, active, sessions,
--   outcome
-- args: epoch?, turn?, call_ms, effect?, effect_ms, job_id, before, job, run_name, run, sid, entry, grace_ms, session_key,
--   lane
-- result: status, values
--   before, job: the job before and after, as JSON
--   values: entry_id, queue for the hint that is due, if any; changed: the job isn't the same as `before`
local over = begin_call(keys, args, 1)
if over then return over end
if redis.call('HGET', keys.cron_jobs, args.job_id) ~= args.before then return result{status = 'changed'} end
local id, queue = accept(keys, args)
redis.call('HSET', keys.cron_jobs, args.job_id, args.job)
redis.call('HSET', keys.cron_open, args.run_name, keys.outcome .. id .. ' ' .. args.run)
announce_cron()
return end_call(keys, args, {entry_id = id, queue = queue})
