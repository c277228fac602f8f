-- The record of a conversation.

-- Add lines to a record, and restart its expiry. If it gets longer than `max_bytes`, remove its oldest lines.
local function append_record(record, lines, max_bytes, keep_ms)
  local size = redis.call('APPEND', record, lines)
  max_bytes = tonumber(max_bytes)
  if size > max_bytes then  -- remove a quarter at once, so that the record isn't copied in every turn
    local rest = redis.call('GETRANGE', record, -math.floor(max_bytes * 0.75), -1)
    redis.call('SET', record, string.sub(rest, (string.find(rest, '\n', 1, true) or #rest) + 1))
  end
  redis.call('PEXPIRE', record, keep_ms)
end
