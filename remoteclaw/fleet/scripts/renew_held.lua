-- Renew the lease of a terminal, on behalf of its living holder.
-- keys: state, active
-- args: epoch, sid, hold_ms, grace_ms
-- result: stop_entry, newest_message, newest_entry, kept_until_ms
--   stop_entry: the id up to which everything is stopped; newest_message: the newest entry with a bell;
--   kept_until_ms: until when the kept batch is postponed, 0 if it is not any more; nothing without one
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local held = redis.call('HMGET', keys.state, 'worker', 'held', 'lease_until_ms', 'stop_entry',
  'last_said_entry', 'last_entry', 'stopped_terminal', 'kept_batch', 'kept_postponed_until_ms')
-- The terminal was ended, declared dead, or taken over by a worker that settles it, while this call was on its way.
if not held[2] or held[1] ~= held[2] or tonumber(held[3]) == 0 then
  return redis.error_reply('FENCED the terminal is not held any more')
end
local now = now_ms()
redis.call('HSET', keys.state, 'lease_until_ms', now + args.hold_ms)
redis.call('ZADD', keys.active, now + args.hold_ms + args.grace_ms, args.sid)
return result{stop_entry = held[7] or held[4], newest_message = held[5], newest_entry = held[6],
  kept_until_ms = held[8] and (held[9] or '0')}
