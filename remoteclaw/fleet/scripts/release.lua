-- Give the lease back while entries remain; the caller hints.
-- KEYS state, active; ARGV epoch, sid, time until the sweeper looks ms, 1 if this host can't serve it
-- → queue
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
if redis.call('HGET', KEYS[1], 'state') == 'running' then  -- else said before
  redis.call('HSET', KEYS[1], 'state', 'scheduled')
  redis.call('HDEL', KEYS[1], 'nonce', 'expires', 'worker')
  redis.call('ZADD', KEYS[2], now_ms() + ARGV[3], ARGV[2])
  if ARGV[4] == '1' then
    redis.call('HDEL', KEYS[1], 'host')
    if redis.call('HEXISTS', KEYS[1], 'begun') == 1 then
      redis.call('HINCRBY', KEYS[1], 'forgiven', 1)
    end
  end
end
return queue_of(KEYS[1])
