-- Store and announce the answer so far. The last write wins, and it expires.
-- keys: state, live, live_of?
-- args: epoch, turn, attempt, text, keep_ms, usage?, for_chat?
--   usage: that of the attempt so far, which counts if the attempt is cut off
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local turn, attempt = unpack(redis.call('HMGET', keys.state, 'turn', 'attempt'))
if args.usage and turn == args.turn and attempt == args.attempt then
  redis.call('HSET', keys.state, 'spent_now', args.usage)
end
if is_full_for('messages') then return 0 end
redis.call('SET', keys.live, args.text, 'PX', args.keep_ms)
redis.call('PUBLISH', keys.live, args.text)
if keys.live_of then redis.call('PUBLISH', keys.live_of, args.for_chat) end
return 1
