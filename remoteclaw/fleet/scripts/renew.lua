-- Renew the lease, and return the data of announcements that may have been lost.
-- keys: state, active
-- args: epoch, sid, lease_ms, grace_ms
-- result: stop_entry, newest_message
--   stop_entry: the id up to which everything is stopped; newest_message: the newest entry with a bell
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
-- The lease was released, or the session postponed, while this call was on its way.
if redis.call('HGET', keys.state, 'status') ~= 'running' then return result{} end
local now = now_ms()
redis.call('HSET', keys.state, 'lease_until_ms', now + args.lease_ms)
redis.call('ZADD', keys.active, now + args.lease_ms + args.grace_ms, args.sid)
local ids = redis.call('HMGET', keys.state, 'stop_entry', 'last_said_entry')
return result{stop_entry = ids[1], newest_message = ids[2]}
