-- Note up to where an account's messages were read: from there its adapter goes on.
-- keys: reader, position, account
-- args: token, position, accepted, aside
--   accepted, aside: how many messages were taken in, and how many could not be read
local token = redis.call('GET', keys.reader)
if token and token ~= args.token then
  return redis.error_reply('FENCED another adapter reads for this account')
end
if redis.call('GET', keys.position) == args.position then return 0 end
redis.call('SET', keys.position, args.position)
redis.call('HINCRBY', keys.account, 'accepted', args.accepted)
redis.call('HINCRBY', keys.account, 'aside', args.aside)
return 1
