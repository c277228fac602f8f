-- Forget the late messages of a place, because a notice has told of them.
-- keys: reader, late_messages
-- args: token, place, summary
--   summary: what the notice told of; if more have been added since, they are kept
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
local summary = redis.call('HGET', keys.late_messages, args.place)
if summary == args.summary then redis.call('HDEL', keys.late_messages, args.place) end
