-- Add an event to a chat, once.
-- keys: web, web_event_ids, web_chats, web_updates
-- args: kind, data, of, name, by_person_to, max_events, max_bytes, max_chats, keep_ms, chat_id
--   data: the event's data as JSON; of: the message that the event is about, which must exist; name: the name of the
--   event's cause, so that the event is added once
--   by_person_to: for a person's event, for which there must be room, also for a new chat: the agent that a new chat is
--   with
-- → the event's id; or the reason of a refusal: full, many, or gone for the message that it is about
local known = given(args.name) and redis.call('HGET', keys.web_event_ids, args.name)
if known then return known end
if given(args.of) then
  local message = redis.call('XRANGE', keys.web, args.of, args.of)[1]
  if not message or message[2][2] ~= 'message' then return 'gone' end
end
if given(args.by_person_to) then
  if is_full_for('messages') then return 'full' end
  -- Expired chats no longer count.
  redis.call('ZREMRANGEBYSCORE', keys.web_chats, '-inf', now_ms() - args.keep_ms)
  local is_new = not redis.call('ZSCORE', keys.web_chats, args.chat_id)
  if is_new and redis.call('ZCARD', keys.web_chats) >= tonumber(args.max_chats) then return 'many' end
  redis.call('ZADD', keys.web_chats, now_ms(), args.chat_id)
  redis.call('PEXPIRE', keys.web_chats, args.keep_ms)
  redis.call('HSETNX', keys.web_event_ids, 'agent', args.by_person_to)
end
if args.kind == 'deletion' then redis.call('XDEL', keys.web, args.of) end
local id = redis.call('XADD', keys.web, '*', 'kind', args.kind, 'about', args.data, 'name', args.name)
if given(args.name) then redis.call('HSET', keys.web_event_ids, args.name, id) end
-- The oldest events make room; the names of their causes are removed with them.
local count = redis.call('XLEN', keys.web)
while count > tonumber(args.max_events) or (count > 1 and bytes_of(keys.web) > tonumber(args.max_bytes)) do
  local oldest = redis.call('XRANGE', keys.web, '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', keys.web, oldest[1])
  redis.call('HDEL', keys.web_event_ids, oldest[2][6])
  count = count - 1
end
redis.call('PEXPIRE', keys.web, args.keep_ms)
redis.call('PEXPIRE', keys.web_event_ids, args.keep_ms)
redis.call('PUBLISH', keys.web_updates, id .. ' ' .. args.chat_id)
return id
