-- Become or stay the reader of a reply stream, or stand by if another adapter has the claim. A new reader doesn't get
-- replies that no adapter has read for too long.
-- uses: replies
-- keys: reader, readers, standbys, replies
-- args: token, claim_ms, name, known_ms, ended?
--   ended: the token of a reader whose process has ended without releasing its claim
-- → nothing if the caller is the reader, else the reader's token
local token = redis.call('GET', keys.reader)
if token and token ~= args.token and token ~= args.ended then
  redis.call('ZADD', keys.standbys, now_ms() + args.claim_ms, args.token)
  redis.call('PEXPIRE', keys.standbys, args.claim_ms)
  return token
end
redis.call('ZREM', keys.standbys, args.token)
redis.call('SET', keys.reader, args.token, 'PX', args.claim_ms)
if is_unread(args.name) then
  abandon_unread(keys.replies, math.huge)
end
local now = now_ms()
redis.call('ZADD', keys.readers, now + args.claim_ms, args.name)
redis.call('ZREMRANGEBYSCORE', keys.readers, '-inf', now - args.known_ms)
