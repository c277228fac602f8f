-- Accept a message: dedupe, store, note the time, and schedule an idle session, all or nothing.
-- KEYS inbound, state, seen, active, sessions
-- ARGV sid, entry, grace ms, dedupe ms, outcome prefix, session key, agent,
--      the part of the server's memory beyond which nothing is accepted
-- → accepted|duplicate|full, entry id, 1 if a hint is due
local seen = redis.call('GET', KEYS[3])
if seen then
  -- The first caller may have died before it could hint, so a session that waits is hinted again.
  local scheduled = redis.call('HGET', KEYS[2], 'state') == 'scheduled'
  return {'duplicate', seen, scheduled and 1 or 0}
end
if memory_used() > tonumber(ARGV[8]) then return {'full', '', 0} end
local now = now_ms()
local id = redis.call('XADD', KEYS[1], '*', 'entry', ARGV[2])
redis.call('SET', KEYS[3], id, 'PX', ARGV[4])
local previous = redis.call('HGET', KEYS[2], 'last') or ''
redis.call('HSET', ARGV[5] .. id, 'status', 'accepted', 'accepted', now, 'previous', previous)
redis.call('HSET', KEYS[2], 'last', id, 'key', ARGV[6], 'agent', ARGV[7])
redis.call('PERSIST', KEYS[2])
redis.call('PERSIST', KEYS[1])
redis.call('ZADD', KEYS[5], now, ARGV[1])
if redis.call('HEXISTS', KEYS[2], 'state') == 1 then return {'accepted', id, 0} end
redis.call('HSET', KEYS[2], 'state', 'scheduled')
redis.call('ZADD', KEYS[4], now + ARGV[3], ARGV[1])
return {'accepted', id, 1}
