-- Note an event in a chat of the page, once.
-- keys: chat, once
-- args: kind, about, removes, name, most, keep_ms, channel, chat_id
--   removes: a message that is deleted by it
-- → the event's id
local known = redis.call('HGET', keys.once, args.name)
if known then return known end
if given(args.removes) then redis.call('XDEL', keys.chat, args.removes) end
local id = redis.call('XADD', keys.chat, 'MAXLEN', args.most, '*', 'kind', args.kind, 'about', args.about)
redis.call('HSET', keys.once, args.name, id)
redis.call('PEXPIRE', keys.chat, args.keep_ms)
redis.call('PEXPIRE', keys.once, args.keep_ms)
redis.call('PUBLISH', args.channel, args.chat_id)
return id
