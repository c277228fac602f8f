-- Note an event in a chat of the page, once.
-- keys: chat, once, begun
-- args: kind, about, of, name, is_persons, most, most_bytes, most_begun, keep_ms, channel, chat_id
--   of: the message that it is about, which is kept; name: what brought it, so that it comes once
--   is_persons: whether it needs room that there is, and begins a conversation that may be one too many
-- → the event's id; or why there is none: full, many, or gone for the message that it is about
local known = given(args.name) and redis.call('HGET', keys.once, args.name)
if known then return known end
if given(args.of) then
  local message = redis.call('XRANGE', keys.chat, args.of, args.of)[1]
  if not message or message[2][2] ~= 'message' then return 'gone' end
end
if args.is_persons == '1' then
  if is_full_for('messages') then return 'full' end
  -- What a person has begun, by its last message: what is not kept any more counts no more.
  redis.call('ZREMRANGEBYSCORE', keys.begun, '-inf', now_ms() - args.keep_ms)
  local is_new = not redis.call('ZSCORE', keys.begun, args.chat_id)
  if is_new and redis.call('ZCARD', keys.begun) >= tonumber(args.most_begun) then return 'many' end
  redis.call('ZADD', keys.begun, now_ms(), args.chat_id)
  redis.call('PEXPIRE', keys.begun, args.keep_ms)
end
if args.kind == 'deletion' then redis.call('XDEL', keys.chat, args.of) end
local id = redis.call('XADD', keys.chat, '*', 'kind', args.kind, 'about', args.about, 'name', args.name)
if given(args.name) then redis.call('HSET', keys.once, args.name, id) end
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
redis.call('PUBLISH', args.channel, id .. ' ' .. args.chat_id)
return id
