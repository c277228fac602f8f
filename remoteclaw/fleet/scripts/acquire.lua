-- Take the session's lease, unless somebody else holds it or the session is postponed.
-- KEYS state, inbound, active, session map, address of the host's gateway
-- ARGV sid, nonce, lease ms, grace ms, owner of the lease (for people), entries to return,
--      session map's time ms, host
-- → idle | busy | acquired, epoch, state, session map, first entries, address or nothing
local held = redis.call('HMGET', KEYS[1], 'state', 'nonce', 'expires', 'epoch', 'not_before')
local state, nonce, expires, epoch = held[1], held[2], tonumber(held[3] or 0), held[4]
if not state then return {'idle'} end
local now = now_ms()
if state == 'running' and nonce ~= ARGV[2] and expires > now then return {'busy'} end
-- Whatever is to wake it before has removed the time.
if state == 'scheduled' and held[5] and tonumber(held[5]) > now then return {'busy'} end
-- A hint that is left over must not take a session from the host that has its agent.
local queue = queue_of(KEYS[1])
local host = string.match(queue, '@(.*)')
if state == 'scheduled' and host and host ~= ARGV[8] then return {'busy'} end
if state ~= 'running' or nonce ~= ARGV[2] then
  -- The clock, so that a server which lost the last epochs can't give one out again. Where the clock is
  -- behind, because it was set back, two callers take different steps.
  local step = 1 + tonumber(string.sub(ARGV[2], 1, 5), 16)
  epoch = tonumber(epoch or 0)
  epoch = string.format('%.0f', now > epoch and now or epoch + step)
end
redis.call('HSET', KEYS[1], 'state', 'running', 'epoch', epoch, 'nonce', ARGV[2],
  'expires', now + ARGV[3], 'worker', ARGV[5])
redis.call('HDEL', KEYS[1], 'swept', 'not_before')
redis.call('PEXPIRE', KEYS[4], ARGV[7])
redis.call('HSET', KEYS[1], 'host', ARGV[8])
redis.call('ZADD', KEYS[3], now + ARGV[3] + ARGV[4], ARGV[1])
return {'acquired', epoch, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[4]),
  redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', ARGV[6]), redis.call('GET', KEYS[5]) or ''}
