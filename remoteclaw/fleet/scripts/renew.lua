-- Hold the lease for longer, and learn of what an announcement may have failed to tell.
-- keys: state, active
-- args: epoch, sid, lease_ms, grace_ms
-- → the id up to which all is stopped, the newest entry that a person has sent
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
-- It was given back, or postponed, while this was on its way.
if redis.call('HGET', keys.state, 'status') ~= 'running' then return {'', ''} end
local now = now_ms()
redis.call('HSET', keys.state, 'lease_until_ms', now + args.lease_ms)
redis.call('ZADD', keys.active, now + args.lease_ms + args.grace_ms, args.sid)
local told = redis.call('HMGET', keys.state, 'stop_entry', 'last_said_entry')
return {told[1] or '', told[2] or ''}
