-- Record the position up to which an account's messages were read; its adapter continues there.
-- keys: reader, position, account
-- args: token, position, accepted, skipped
--   accepted, skipped: the numbers of messages that were accepted, and that were skipped
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
if redis.call('GET', keys.position) == args.position then return 0 end
redis.call('SET', keys.position, args.position)
redis.call('HINCRBY', keys.account, 'accepted', args.accepted)
redis.call('HINCRBY', keys.account, 'aside', args.skipped)
return 1
