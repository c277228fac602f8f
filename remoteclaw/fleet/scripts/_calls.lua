-- The scripts call_*.lua do what a call of a tool asks for: once, and only while the turn runs that
-- asks for it; and they note with the turn that it was done. These are the same in all of them:
-- keys: caller?, call, side_effects?, sent?: the caller's state, what is known of the call, what the tools of
--   the turn did, what those of the chat have sent within the hour; of an operator only the call
-- args: epoch?, turn?, call_ms, note?, note_ms: how long the call and the note (JSON) are kept
-- → done|again, what came of it: ids, one a line; or why nothing was done:
--   no room: the server is too full; too much: what would have been sent (`sends_too_much`)

-- What the tools of one turn, and of a chat's turns within an hour, may send.
local MOST_OF_TURN = {messages = 100, bytes = 1024 * 1024}
local MOST_OF_HOUR = {messages = 300, bytes = 4 * 1024 * 1024}

-- Whether a call would send more than its turn may, or its chat within the hour.
-- added: messages, bytes
-- → nothing, or what it would be: turn|hour, messages|bytes, how many, and how many are the most
local function sends_too_much(state, hour, added)
  for _, counted in ipairs({{'turn', state, MOST_OF_TURN}, {'hour', hour, MOST_OF_HOUR}}) do
    local scope, key, most = unpack(counted)
    for what, number in pairs(added) do
      local sent = number + (tonumber(redis.call('HGET', key, 'sent_' .. what)) or 0)
      if sent > most[what] then return table.concat({scope, what, sent, most[what]}, '\n') end
    end
  end
  return nil
end

-- Count what a call has sent.
local function count_sent(state, hour, added)
  for what, number in pairs(added) do
    redis.call('HINCRBY', state, 'sent_' .. what, number)
    redis.call('HINCRBY', hour, 'sent_' .. what, number)
  end
  if redis.call('PTTL', hour) < 0 then redis.call('PEXPIRE', hour, HOUR_MS) end
end

-- Refuse a call whose turn doesn't run, and answer one that was done.
-- → what the script returns; nothing if it goes on
local function answer_call(keys, args)
  if args.epoch then
    local fence = fenced(keys.caller, args.epoch)
    if fence then return fence end
    local running = redis.call('HMGET', keys.caller, 'status', 'turn', 'batch', 'stop_entry')
    local asked = split(running[3] or '')
    if asked[1] and id_at_most(asked[#asked], running[4]) then
      return redis.error_reply('FENCED turn ' .. args.turn .. ' was stopped')
    end
    if running[1] ~= 'running' or running[2] ~= args.turn then
      return redis.error_reply('FENCED turn ' .. args.turn .. ' is not running')
    end
  end
  local made = redis.call('GET', keys.call)
  return made and {'again', made}
end

-- Refuse a call that there is no room for, and count what it sends: so many messages, and all its bytes.
-- → what the script returns; nothing if it goes on
local function count_call(keys, args, messages)
  if is_full_for(args.epoch and 'tools' or 'messages') then return {'no room', ''} end
  if not args.epoch then return nil end
  local sent = {messages = messages, bytes = 0}
  for _, value in ipairs(ARGV) do sent.bytes = sent.bytes + #value end
  local beyond = sends_too_much(keys.caller, keys.sent, sent)
  if beyond then return {'too much', beyond} end
  args.sends = sent
end

-- Remember a call and note it with the turn. → what the script returns
local function end_call(keys, args, ...)
  local result = table.concat({...}, '\n')
  if args.sends then count_sent(keys.caller, keys.sent, args.sends) end
  redis.call('SET', keys.call, result, 'PX', args.call_ms)
  if args.note then
    redis.call('RPUSH', keys.side_effects, args.note)
    redis.call('PEXPIRE', keys.side_effects, args.note_ms)
  end
  return {'done', result}
end
