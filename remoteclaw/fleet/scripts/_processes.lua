-- Announcements of the fleet's processes.

-- Note that a process runs. facts: its host, its version, and its identity if it is a worker; uptime_ms: for how long
local function announce_process(processes, field, facts, uptime_ms)
  local now = now_ms()
  redis.call('HSET', processes, field, cjson.encode({
    host = facts.host, version = facts.version, identity = facts.identity, since_ms = now - uptime_ms, at_ms = now,
  }))
end
