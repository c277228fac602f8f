-- Give the lease to the holder of the turn's terminal. It is an ordinary lease with a new epoch, which fences the late
-- writes of the worker. It lasts longer, and the holder's host renews it while the holder lives.
-- keys: state, active
-- args: epoch, nonce, sid, turn, place, holder, hold_ms, grace_ms
-- → the new epoch
local held = redis.call('HMGET', keys.state, 'lease_nonce', 'epoch', 'held')
if held[1] == args.nonce and held[3] then return held[2] end  -- a repeated call
local fence = fenced_turn(keys.state, args)
if fence then return fence end
-- The next number, not the clock: if the server loses this write and the call is repeated, the epoch is the same, and the
-- process that renews the lease can continue.
local now, epoch = now_ms(), string.format('%.0f', tonumber(args.epoch) + 1)
redis.call('HSET', keys.state, 'epoch', epoch, 'lease_nonce', args.nonce, 'lease_until_ms', now + args.hold_ms,
  'worker', args.holder, 'held', args.holder, 'terminal', args.place,
  'phase', 'spawned')
redis.call('ZADD', keys.active, now + args.hold_ms + args.grace_ms, args.sid)
redis.call('PUBLISH', 'rc:terminal-updates', args.sid)
return epoch
