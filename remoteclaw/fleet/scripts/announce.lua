-- Note that a process of the fleet runs.
-- uses: processes
-- keys: processes
-- args: field, host, version, uptime_ms
announce_process(keys.processes, args.field, args, args.uptime_ms)
