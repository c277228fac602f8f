-- Announcements of the fleet's processes.

-- Note that a process runs. facts: its host and version; uptime_ms: for how long
local function announce_process(processes, field, facts, uptime_ms)
  local now = now_ms()
  redis.call('HSET', processes, field, cjson.encode({
    host = facts.host, version = facts.version, since_ms = now - uptime_ms, at_ms = now,
  }))
end
