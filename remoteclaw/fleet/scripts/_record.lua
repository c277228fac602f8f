-- The record of a conversation.

-- Add lines to a record, and keep it for so long; beyond `most` bytes, its oldest lines go.
local function append_record(record, lines, most, keep_ms)
  local size = redis.call('APPEND', record, lines)
  most = tonumber(most)
  if size > most then  -- a quarter goes at once, so that it isn't copied with each turn
    local rest = redis.call('GETRANGE', record, -math.floor(most * 0.75), -1)
    redis.call('SET', record, string.sub(rest, (string.find(rest, '\n', 1, true) or #rest) + 1))
  end
  redis.call('PEXPIRE', record, keep_ms)
end
