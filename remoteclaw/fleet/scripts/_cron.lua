-- Cron jobs and their runs.

local function announce_cron() redis.call('PUBLISH', 'rc:cron-updates', '') end

-- Add a line to the history of a cron job's runs, and to the history of all runs.
local function note_run(keys, args, line)
  for key, max in pairs({[keys.cron_job_runs] = args.max_runs, [keys.cron_runs] = args.max_all_runs}) do
    redis.call('LPUSH', key, line)
    redis.call('LTRIM', key, 0, max - 1)
    redis.call('PEXPIRE', key, args.runs_ms)
  end
  announce_cron()
end

-- Store a cron job; nil removes it.
local function set_job(keys, id, job)
  if job then redis.call('HSET', keys.cron_jobs, id, job) else redis.call('HDEL', keys.cron_jobs, id) end
end

-- Set when a cron job is due; nil means never.
local function set_due(keys, id, due_ms)
  if due_ms then redis.call('ZADD', keys.cron_due, due_ms, id) else redis.call('ZREM', keys.cron_due, id) end
  announce_cron()
end
