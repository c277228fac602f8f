-- Add an event to a chat, once.
-- keys: chat, event_ids, chats
-- args: kind, data, of, name, by_person_to, max_events, max_bytes, max_chats, keep_ms, channel, chat_id
--   data: the event's data as JSON; of: the message that the event is about, which must exist; name: the name of the
--   event's cause, so that the event is added once
--   by_person_to: for a person's event, for which there must be room, also for a new chat: the agent that a new chat is
--   with
-- → the event's id; or the reason of a refusal: full, many, or gone for the message that it is about
local known = given(args.name) and redis.call('HGET', keys.event_ids, args.name)
if known then return known end
if given(args.of) then
  local message = redis.call('XRANGE', keys.chat, args.of, args.of)[1]
  if not message or message[2][2] ~= 'message' then return 'gone' end
end
if given(args.by_person_to) then
  if is_full_for('messages') then return 'full' end
  -- Expired chats no longer count.
  redis.call('ZREMRANGEBYSCORE', keys.chats, '-inf', now_ms() - args.keep_ms)
  local is_new = not redis.call('ZSCORE', keys.chats, args.chat_id)
  if is_new and redis.call('ZCARD', keys.chats) >= tonumber(args.max_chats) then return 'many' end
  redis.call('ZADD', keys.chats, now_ms(), args.chat_id)
  redis.call('PEXPIRE', keys.chats, args.keep_ms)
  redis.call('HSETNX', keys.event_ids, 'agent', args.by_person_to)
end
if args.kind == 'deletion' then redis.call('XDEL', keys.chat, args.of) end
local id = redis.call('XADD', keys.chat, '*', 'kind', args.kind, 'about', args.data, 'name', args.name)
if given(args.name) then redis.call('HSET', keys.event_ids, args.name, id) end
-- The oldest events make room; the names of their causes are removed with them.
local count = redis.call('XLEN', keys.chat)
while count > tonumber(args.max_events) or (count > 1 and bytes_of(keys.chat) > tonumber(args.max_bytes)) do
  local oldest = redis.call('XRANGE', keys.chat, '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', keys.chat, oldest[1])
  redis.call('HDEL', keys.event_ids, oldest[2][6])
  count = count - 1
end
redis.call('PEXPIRE', keys.chat, args.keep_ms)
redis.call('PEXPIRE', keys.event_ids, args.keep_ms)
redis.call('PUBLISH', args.channel, id .. ' ' .. args.chat_id)
return id
