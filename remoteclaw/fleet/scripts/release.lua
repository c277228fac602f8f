-- Release the lease while entries remain; the caller sends the hint.
-- keys: state, active
-- args: epoch, sid, delay_ms, is_elsewhere
--   delay_ms: the time until the sweeper checks the session; is_elsewhere: whether another host is to take the session
-- → queue
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'status') == 'running' then  -- else a repeated call
  redis.call('HSET', keys.state, 'status', 'scheduled')
  announce_sessions()
  redis.call('HDEL', keys.state, 'lease_nonce', 'lease_until_ms', 'worker')
  redis.call('ZADD', keys.active, now_ms() + args.delay_ms, args.sid)
  if args.is_elsewhere == '1' then
    redis.call('HDEL', keys.state, 'host')
    if redis.call('HEXISTS', keys.state, 'attempt_nonce') == 1 then
      redis.call('HINCRBY', keys.state, 'forgiven_attempts', 1)
    end
  end
end
return queue_of(keys.state)
