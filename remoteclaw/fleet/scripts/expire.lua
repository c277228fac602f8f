-- End a lease whose owner is known to be dead, so that no message waits until the lease expires.
-- keys: state, active
-- args: epoch, sid, is_deliberate
--   is_deliberate: whether the owner was ended on purpose, so that the attempt doesn't count as a failure
-- → 1; 0 if the lease is not that owner's, or has ended already
if redis.call('HGET', keys.state, 'epoch') ~= args.epoch then return 0 end
if redis.call('HGET', keys.state, 'status') ~= 'running' then return 0 end
if tonumber(redis.call('HGET', keys.state, 'lease_until_ms')) == 0 then return 0 end  -- a repeated call
redis.call('HSET', keys.state, 'lease_until_ms', 0)
if args.is_deliberate == '1' and redis.call('HEXISTS', keys.state, 'attempt_nonce') == 1 then
  redis.call('HINCRBY', keys.state, 'forgiven_attempts', 1)
end
redis.call('ZADD', keys.active, 0, args.sid)
return 1
