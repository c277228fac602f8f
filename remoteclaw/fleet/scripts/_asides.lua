-- Entries that are answered beside a turn.

-- Whether an entry waits on its stream, and is a part of no turn.
-- keys: state, inbound
local function waits_alone(keys, id)
  if not redis.call('XRANGE', keys.inbound, id, id)[1] then return false end
  local batch, steered = unpack(redis.call('HMGET', keys.state, 'batch', 'steered'))
  for _, each in ipairs(split((batch or '') .. ',' .. (steered or ''))) do
    if each == id then return false end
  end
  return true
end

-- What is kept for the agent's next turn: the newest.
local MOST_BESIDE, BESIDE_MS = 50, 7 * 24 * HOUR_MS

-- Note for the agent's next turn what was said in its chat beside its turns.
local function note_beside(list, note)
  redis.call('RPUSH', list, note)
  redis.call('LTRIM', list, -MOST_BESIDE, -1)
  redis.call('PEXPIRE', list, BESIDE_MS)
end
