-- Entries on the streams of sessions.

-- At most this much waits in one session: it must not take the room of the others.
local MAX_WAITING, MAX_WAITING_BYTES = 1000, 4 * 1024 * 1024

-- Store an entry, and schedule the session if it is idle. With `bell`, the running turn is notified, because the entry
-- may join it: a person's message, or a message to a task. Other entries have no bell and interrupt nothing.
-- keys: inbound, state, active, sessions
-- it: entry, sid, grace_ms, outcomes, session_key, lane, bell?, stopped? (the number of entries that this one stops)
-- → entry id, queue if a hint is due, else nothing
local function accept(keys, it)
  local now, lane = now_ms(), it.lane
  local id
  if it.stopped then
    id = redis.call('XADD', keys.inbound, '*', 'entry', it.entry, 'stopped', it.stopped)
  else
    id = redis.call('XADD', keys.inbound, '*', 'entry', it.entry)
  end
  local previous = redis.call('HGET', keys.state, 'last_entry') or ''
  redis.call('HSET', keys.outcome .. id, 'status', 'accepted', 'accepted', now, 'previous', previous)
  redis.call('HSET', keys.state, 'last_entry', id, 'key', it.session_key)
  redis.call('PERSIST', keys.state)
  redis.call('PERSIST', keys.inbound)
  redis.call('ZADD', keys.sessions, now, it.sid)
  announce_sessions()
  if keys.bell then
    redis.call('HSET', keys.state, 'last_said_entry', id)
    if redis.call('HEXISTS', keys.state, 'turn') == 1 then redis.call('PUBLISH', keys.bell, '') end
  end
  -- A budget may limit only some of a session's people: what waits for one is tried again with each entry.
  local is_woken = redis.call('HGET', keys.state, 'postponed_reason') == 'budget' and
    redis.call('HDEL', keys.state, 'postponed_until_ms') == 1
  if is_woken then redis.call('ZADD', keys.active, now, it.sid) end
  local status, lane_now = unpack(redis.call('HMGET', keys.state, 'status', 'lane'))
  if status then
    if lane_now == lane or lane ~= 'agents' then return id, is_woken and queue_if_scheduled(keys.state) or '' end
    -- A person writes to a session that waits in the background lane: it moves to the faster lane.
    redis.call('HSET', keys.state, 'lane', lane)
    return id, queue_if_scheduled(keys.state)
  end
  redis.call('HSET', keys.state, 'status', 'scheduled', 'lane', lane)
  redis.call('ZADD', keys.active, now + it.grace_ms, it.sid)
  return id, queue_of(keys.state)
end
