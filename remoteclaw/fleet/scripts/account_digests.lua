-- Return the secret of the digests of accounts, which is made once for the fleet.
-- keys: account_digests
-- args: new
redis.call('SETNX', keys.account_digests, args.new)
return redis.call('GET', keys.account_digests)
