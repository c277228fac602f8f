-- Entries on sessions' streams; with replies.

-- Store an entry, note the time, and schedule an idle session. With a bell, a running turn is told:
-- what no person has sent has none, and interrupts nothing. The next person who writes to a postponed
-- session is told that this waits too.
-- keys: inbound, state, active, sessions
-- it: entry, sid, grace_ms, outcomes, session_key, lane, bell?, and of an entry that stops others
--   stopped, stopped_below: how many here, and in the sessions that this one has started
-- → entry id, queue if a hint is due, else nothing
local function accept(keys, it)
  local now, lane = now_ms(), it.lane
  local id
  if it.stopped then
    id = redis.call('XADD', keys.inbound, '*', 'entry', it.entry, 'stopped', it.stopped, 'below', it.stopped_below)
  else
    id = redis.call('XADD', keys.inbound, '*', 'entry', it.entry)
  end
  local previous = redis.call('HGET', keys.state, 'last_entry') or ''
  redis.call('HSET', it.outcomes .. id, 'status', 'accepted', 'accepted', now, 'previous', previous)
  redis.call('HSET', keys.state, 'last_entry', id, 'key', it.session_key)
  redis.call('PERSIST', keys.state)
  redis.call('PERSIST', keys.inbound)
  redis.call('ZADD', keys.sessions, now, it.sid)
  if it.bell then
    redis.call('HSET', keys.state, 'last_said_entry', id)
    if redis.call('HEXISTS', keys.state, 'turn') == 1 then redis.call('PUBLISH', it.bell, 'entry ' .. id) end
  end
  local status, lane_now, postponed_until, later =
    unpack(redis.call('HMGET', keys.state, 'status', 'lane', 'postponed_until_ms', 'later_reply'))
  if status then
    if postponed_until and later and it.bell then
      redis.call('HDEL', keys.state, 'later_reply')
      local replies, payload = string.match(later, '^([^\n]*)\n(.*)$')
      put_reply(replies, payload)
    end
    if lane_now == lane or lane ~= 'agents' then return id, '' end
    -- A person writes to a session that waits behind the others.
    redis.call('HSET', keys.state, 'lane', lane)
    return id, queue_if_scheduled(keys.state)
  end
  redis.call('HSET', keys.state, 'status', 'scheduled', 'lane', lane)
  redis.call('ZADD', keys.active, now + it.grace_ms, it.sid)
  return id, queue_of(keys.state)
end
