-- Note an event in a chat of the page, once.
-- keys: chat, once
-- args: kind, about, removes, name, is_persons, most, most_bytes, keep_ms, channel, chat_id
--   removes: a message that is deleted by it; is_persons: whether it needs room that there is
-- → the event's id; nothing if there is no room
local known = redis.call('HGET', keys.once, args.name)
if known then return known end
if args.is_persons == '1' and is_full_for('messages') then return '' end
if given(args.removes) then redis.call('XDEL', keys.chat, args.removes) end
local id = redis.call('XADD', keys.chat, '*', 'kind', args.kind, 'about', args.about, 'name', args.name)
redis.call('HSET', keys.once, args.name, id)
-- The oldest make room, and what brought each is forgotten with it.
local count = redis.call('XLEN', keys.chat)
while count > tonumber(args.most) or (count > 1 and bytes_of(keys.chat) > tonumber(args.most_bytes)) do
  local oldest = redis.call('XRANGE', keys.chat, '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', keys.chat, oldest[1])
  redis.call('HDEL', keys.once, oldest[2][6])
  count = count - 1
end
redis.call('PEXPIRE', keys.chat, args.keep_ms)
redis.call('PEXPIRE', keys.once, args.keep_ms)
redis.call('PUBLISH', args.channel, args.chat_id)
return id
