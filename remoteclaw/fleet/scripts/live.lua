-- Store and announce the answer so far. The last write wins, and it expires.
-- uses: usage
-- keys: state, live, live_of?, usage, usage_day, usage_hour, spent
-- args: epoch, turn, attempt, text, keep_ms, usage?, agent, sid, root, payers?, usage_ms, zone_offsets, for_chat?
--   usage: that of the attempt so far
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local turn, attempt = unpack(redis.call('HMGET', keys.state, 'turn', 'attempt'))
if args.usage and turn == args.turn and attempt == args.attempt then
  add_usage_so_far(keys, args)
end
if is_full_for('messages') then return 0 end
redis.call('SET', keys.live, args.text, 'PX', args.keep_ms)
redis.call('PUBLISH', keys.live, args.text)
if keys.live_of then redis.call('PUBLISH', keys.live_of, args.for_chat) end
return 1
