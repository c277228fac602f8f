-- Take the session's lease, unless another worker holds it or the session is postponed.
-- keys: state, inbound, active, session_map, gateway
-- args: sid, nonce, lease_ms, grace_ms, worker, most_entries, map_ms, host
-- → idle | busy | acquired, epoch, state, session map, first entries, address or nothing
local held = redis.call('HMGET', keys.state, 'status', 'lease_nonce', 'lease_until_ms', 'epoch', 'postponed_until_ms')
local state, nonce, expires, epoch = held[1], held[2], tonumber(held[3] or 0), held[4]
if not state then return {'idle'} end
local now = now_ms()
if state == 'running' and nonce ~= args.nonce and expires > now then return {'busy'} end
-- Whatever is to wake it before has removed the time.
if state == 'scheduled' and held[5] and tonumber(held[5]) > now then return {'busy'} end
-- A hint that is left over must not take a session from the host that has its agent.
local queue = queue_of(keys.state)
local host = string.match(queue, '@(.*)')
if state == 'scheduled' and host and host ~= args.host then return {'busy'} end
if state ~= 'running' or nonce ~= args.nonce then
  -- The clock, so that a server which lost the last epochs can't give one out again. Where the clock is
  -- behind, because it was set back, two callers take different steps.
  local step = 1 + tonumber(string.sub(args.nonce, 1, 5), 16)
  epoch = tonumber(epoch or 0)
  epoch = string.format('%.0f', now > epoch and now or epoch + step)
end
redis.call('HSET', keys.state, 'status', 'running', 'epoch', epoch, 'lease_nonce', args.nonce,
  'lease_until_ms', now + args.lease_ms, 'worker', args.worker)
redis.call('HDEL', keys.state, 'sweeps', 'postponed_until_ms')
redis.call('PEXPIRE', keys.session_map, args.map_ms)
redis.call('HSET', keys.state, 'host', args.host)
redis.call('ZADD', keys.active, now + args.lease_ms + args.grace_ms, args.sid)
return {'acquired', epoch, redis.call('HGETALL', keys.state), redis.call('HGETALL', keys.session_map),
  redis.call('XRANGE', keys.inbound, '-', '+', 'COUNT', args.most_entries), redis.call('GET', keys.gateway) or ''}
