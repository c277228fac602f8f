-- Acquire the session's lease, unless another worker holds it or the session is postponed.
-- uses: edits
-- keys: state, active, session_map, gateway, inbound
-- args: sid, nonce, lease_ms, grace_ms, worker, map_ms, host, max_entries
-- result: status, epoch, state, session_map, gateway, entries
--   status: idle|busy|acquired; gateway: the address of the host's gateway; entries: the oldest entries
local held = redis.call('HMGET', keys.state, 'status', 'lease_nonce', 'lease_until_ms', 'epoch', 'postponed_until_ms')
local status, nonce, expires, epoch = held[1], held[2], tonumber(held[3] or 0), held[4]
if not status then return result{status = 'idle'} end
local now = now_ms()
if status == 'running' and nonce ~= args.nonce and expires > now then return result{status = 'busy'} end
-- An event that is to wake the session earlier removes this time.
if status == 'scheduled' and held[5] and tonumber(held[5]) > now then return result{status = 'busy'} end
-- A stale hint must not take a session from the host that has its agent, nor an ended terminal from the host that has
-- its transcript.
local queue = queue_of(keys.state)
local host = string.match(queue, '@(.*)')
local is_kept = status == 'scheduled' or redis.call('HEXISTS', keys.state, 'held') == 1
if is_kept and host and host ~= args.host then return result{status = 'busy'} end
if status ~= 'running' or nonce ~= args.nonce then
  -- At least the clock, so that a server which has lost the last epochs can't give one of them out again.
  epoch = string.format('%.0f', math.max(now, tonumber(epoch or 0) + 1))
end
redis.call('HSET', keys.state, 'status', 'running', 'epoch', epoch, 'lease_nonce', args.nonce,
  'lease_until_ms', now + args.lease_ms, 'worker', args.worker)
redis.call('HDEL', keys.state, 'sweeps', 'postponed_until_ms')
-- A conversation's name was the runtime and the directory; now the agent is before them (`conversation_name`).
local agent = string.match(redis.call('HGET', keys.state, 'key') or '', '^[^/]*')
for _, name in ipairs(redis.call('HKEYS', keys.session_map)) do
  if string.match(name, '^[^|]*|/') then
    redis.call('HSET', keys.session_map, agent .. '|' .. name, redis.call('HGET', keys.session_map, name))
    redis.call('HDEL', keys.session_map, name)
  end
end
redis.call('PEXPIRE', keys.session_map, args.map_ms)
announce_sessions()
redis.call('HSET', keys.state, 'host', args.host)
redis.call('ZADD', keys.active, now + args.lease_ms + args.grace_ms, args.sid)
return result{status = 'acquired', epoch = epoch, state = redis.call('HGETALL', keys.state),
  session_map = redis.call('HGETALL', keys.session_map), gateway = redis.call('GET', keys.gateway),
  entries = entries_of(keys.inbound, '-', '+', args.max_entries)}
