-- Release the claim on a reply stream, so that another adapter takes over at once, or stop standing by.
-- What it handled had not ended it, so tries of stored reports count again.
-- keys: reader, readers, standbys, inbox
-- args: token, name
redis.call('ZREM', keys.standbys, args.token)
if redis.call('GET', keys.reader) ~= args.token then return 0 end
redis.call('ZADD', keys.readers, now_ms(), args.name)
local stored = redis.call('HGETALL', keys.inbox)
for index = 1, #stored, 2 do
  redis.call('HSET', keys.inbox, stored[index], '0' .. string.match(stored[index + 1], ' .*'))
end
return redis.call('DEL', keys.reader)
