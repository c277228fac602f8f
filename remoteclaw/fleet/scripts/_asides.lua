-- Entries that are answered during a turn.

-- Whether an entry waits on its stream and neither is nor was part of a turn. Entries that are retried one by one
-- after failures don't count: an earlier attempt may have begun to answer them, and may have killed its worker.
-- keys: state, inbound
local function is_untouched(keys, id)
  if not redis.call('XRANGE', keys.inbound, id, id)[1] then return false end
  if id_at_most(id, redis.call('HGET', keys.state, 'failed_batch_end')) then return false end
  for _, each in ipairs(taken_up(keys.state)) do
    if each == id then return false end
  end
  return true
end

-- The newest notes are kept for the agent's next turn.
local MAX_NOTES, NOTE_MS = 50, 7 * 24 * HOUR_MS

-- Add a note about the session's chat for the agent's next turn.
local function add_note(notes, note)
  redis.call('RPUSH', notes, note)
  redis.call('LTRIM', notes, -MAX_NOTES, -1)
  redis.call('PEXPIRE', notes, NOTE_MS)
end
