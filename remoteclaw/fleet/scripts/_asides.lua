-- Entries that are answered beside a turn.

-- Whether an entry waits on its stream, and neither is nor was a part of a turn: what is tried alone may have
-- begun to be answered, and may have ended its worker.
-- keys: state, inbound
local function waits_alone(keys, id)
  if not redis.call('XRANGE', keys.inbound, id, id)[1] then return false end
  local batch, steered, singly = unpack(redis.call('HMGET', keys.state, 'batch', 'steered', 'singly_entry'))
  if id_at_most(id, singly) then return false end
  for _, each in ipairs(split((batch or '') .. ',' .. (steered or ''))) do
    if each == id then return false end
  end
  return true
end

-- What is kept for the agent's next turn: the newest.
local MAX_BESIDE, BESIDE_MS = 50, 7 * 24 * HOUR_MS

-- Note for the agent's next turn what was said in its chat beside its turns.
local function note_beside(list, note)
  redis.call('RPUSH', list, note)
  redis.call('LTRIM', list, -MAX_BESIDE, -1)
  redis.call('PEXPIRE', list, BESIDE_MS)
end
