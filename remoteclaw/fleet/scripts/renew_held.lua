-- Renew the lease of a terminal, for its holder that lives.
-- keys: state, active
-- args: epoch, sid, hold_ms, grace_ms
-- → the id up to which all is stopped, the newest entry that a person has sent, the newest entry
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local told = redis.call('HMGET', keys.state, 'worker', 'held', 'lease_until_ms', 'stop_entry', 'last_said_entry', 'last_entry')
-- It was ended, given up as dead, or is settled by a worker, while this was on its way.
if not told[2] or told[1] ~= told[2] or tonumber(told[3]) == 0 then
  return redis.error_reply('FENCED the terminal is not held any more')
end
local now = now_ms()
redis.call('HSET', keys.state, 'lease_until_ms', now + args.hold_ms)
redis.call('ZADD', keys.active, now + args.hold_ms + args.grace_ms, args.sid)
return {told[4] or '', told[5] or '', told[6] or ''}
