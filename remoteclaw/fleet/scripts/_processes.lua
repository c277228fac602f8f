-- Announcements of the fleet's processes.

-- Note that a process runs. facts: its host, its version, and if it is a worker, its identity and the name of the host
-- that RQ knows; uptime_ms: for how long
local function announce_process(processes, field, facts, uptime_ms)
  local now = now_ms()
  redis.call('HSET', processes, field, cjson.encode({
    host = facts.host, version = facts.version, identity = facts.identity, hostname = facts.hostname,
    since_ms = now - uptime_ms, at_ms = now,
  }))
end
