-- Store and announce the answer so far. The last write wins, and it expires.
-- keys: state, live, account?
-- args: epoch, text, keep_ms, for_chat?
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if is_full_for('messages') then return 0 end
redis.call('SET', keys.live, args.text, 'PX', args.keep_ms)
redis.call('PUBLISH', keys.live, args.text)
if keys.account then redis.call('PUBLISH', keys.account, args.for_chat) end
return 1
