-- Store how many adapters have begun to handle a stored report.
-- keys: reader, inbox
-- args: token, id, tries
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
local value = redis.call('HGET', keys.inbox, args.id)
if value then redis.call('HSET', keys.inbox, args.id, args.tries .. string.match(value, ' .*')) end
