-- Begin a run of a cron job.
-- uses: entries, calls, cron
-- keys: caller?, call, side_effects?, sent?, jobs, open, inbound, state, active, sessions
-- args: epoch?, turn?, call_ms, note?, note_ms, job_id, before, job, run_name, run, sid, entry, grace_ms,
--   outcomes, session_key, lane
--   before, job: the job before and after, as JSON
-- → as in _calls.lua: entry id, queue if a hint is due, else nothing; changed: the job isn't the same as `before`
local over = begin_call(keys, args, 1)
if over then return over end
if redis.call('HGET', keys.jobs, args.job_id) ~= args.before then return {'changed', ''} end
local id, queue = accept(keys, args)
redis.call('HSET', keys.jobs, args.job_id, args.job)
redis.call('HSET', keys.open, args.run_name, args.outcomes .. id .. ' ' .. args.run)
announce_cron()
return end_call(keys, args, id, queue)
