-- Give the lease to the holder of the turn's terminal. It is an ordinary lease, of a new epoch, so that nothing
-- the worker has still on its way counts; its time is longer, and others renew it while the holder lives.
-- keys: state, active
-- args: epoch, nonce, sid, turn, place, holder, hold_ms, grace_ms
-- → the new epoch
local told = redis.call('HMGET', keys.state, 'lease_nonce', 'epoch', 'held')
if told[1] == args.nonce and told[3] then return told[2] end  -- said before
local fence = fenced_turn(keys.state, args)
if fence then return fence end
-- A server that has lost this, and is asked again, gives the same one: whoever looks after it goes on.
local now, epoch = now_ms(), string.format('%.0f', tonumber(args.epoch) + 1)
redis.call('HSET', keys.state, 'epoch', epoch, 'lease_nonce', args.nonce, 'lease_until_ms', now + args.hold_ms,
  'worker', args.holder, 'held', args.holder, 'terminal', args.place,
  'phase', 'spawned')
redis.call('ZADD', keys.active, now + args.hold_ms + args.grace_ms, args.sid)
redis.call('PUBLISH', 'rc:tty', args.sid)
return epoch
