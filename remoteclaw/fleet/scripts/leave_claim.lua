-- Release the claim on a reply stream, so that another adapter takes over at once, or stop standing by.
-- keys: reader, readers, standbys
-- args: token, account
redis.call('ZREM', keys.standbys, args.token)
if redis.call('GET', keys.reader) ~= args.token then return 0 end
redis.call('ZADD', keys.readers, now_ms(), args.account)
return redis.call('DEL', keys.reader)
