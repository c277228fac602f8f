-- The kept batch: a postponed batch that waits behind a terminal. It is recorded in fields of its own, so that the
-- terminal's turn can be recorded beside it.

local KEPT_FIELDS = {'postponed_until_ms', 'turn_project', 'spent', 'spent_now', 'counted', unpack(TURN_FIELDS)}

local function rename_fields(state, before, after)
  for _, name in ipairs(KEPT_FIELDS) do
    local value = redis.call('HGET', state, before .. name)
    redis.call('HDEL', state, before .. name, after .. name)
    if value then redis.call('HSET', state, after .. name, value) end
  end
end

-- Keep the batch of a postponed session, so that its terminal opens meanwhile. A batch for which an earlier attempt has
-- answered or done something isn't kept: the terminal waits for it.
-- → whether the session was postponed and is not any more
local function keep_batch(state)
  local until_ms, before, batch = unpack(redis.call('HMGET', state, 'postponed_until_ms', 'phase_before', 'batch'))
  if not until_ms or not batch or phase_order[before or ''] > phase_order.postponed then return false end
  rename_fields(state, '', 'kept_')
  return true
end

-- Record the kept batch as the session's batch again.
local function restore_batch(state) rename_fields(state, 'kept_', '') end
