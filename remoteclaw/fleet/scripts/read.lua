-- Become, or stay, the one reader of a reply stream, and be known as such. A new reader is spared what
-- no adapter has read for too long.
-- uses: replies
-- keys: reader, readers, standbys, replies
-- args: token, claim_ms, account, known_ms, ended?
--   ended: the token of a reader that has ended without a word, and need not be waited for
-- → nothing if it is ours, else the token of the one that has it
local token = redis.call('GET', keys.reader)
if token and token ~= args.token and token ~= args.ended then
  redis.call('ZADD', keys.standbys, now_ms() + args.claim_ms, args.token)
  redis.call('PEXPIRE', keys.standbys, args.claim_ms)
  return token
end
redis.call('ZREM', keys.standbys, args.token)
redis.call('SET', keys.reader, args.token, 'PX', args.claim_ms)
if is_unread(args.account) then
  give_up_unread(keys.replies, math.huge)
end
local now = now_ms()
redis.call('ZADD', keys.readers, now + args.claim_ms, args.account)
redis.call('ZREMRANGEBYSCORE', keys.readers, '-inf', now - args.known_ms)
