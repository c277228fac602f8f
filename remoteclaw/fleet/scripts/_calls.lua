-- The scripts call_*.lua do what a call of a tool asks for: once, and only while the turn runs that
-- asks for it; and they note with the turn that it was done. These are the same in all of them:
-- keys: caller?, call, side_effects?, sent?: the caller's state, what is known of the call, what the tools of
--   the turn did, what those of the chat have sent within the hour; of an operator only the call
-- args: epoch?, turn?, call_ms, note?, note_ms: how long the call and the note (JSON) are kept
-- → done|again, what came of it: ids, one a line; or why nothing was done:
--   no room: the server is too full; too much: messages|bytes, how many would have been sent, and how many are the most

-- What the tools of a chat's turns may send within an hour.
local MAX_OF_HOUR = {sent_messages = 300, sent_bytes = 4 * 1024 * 1024}

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
  args.sends = {sent_messages = messages, sent_bytes = 0}
  for _, value in ipairs(ARGV) do args.sends.sent_bytes = args.sends.sent_bytes + #value end
  for what, number in pairs(args.sends) do
    local sum, most = number + (tonumber(redis.call('HGET', keys.sent, what)) or 0), MAX_OF_HOUR[what]
    if sum > most then return {'too much', table.concat({string.sub(what, 6), sum, most}, '\n')} end
  end
end

-- Both at once, for a call that sends in any case.
local function begin_call(keys, args, messages)
  return answer_call(keys, args) or count_call(keys, args, messages)
end

-- Remember a call and note it with the turn. → what the script returns
local function end_call(keys, args, ...)
  local result = table.concat({...}, '\n')
  for what, number in pairs(args.sends or {}) do redis.call('HINCRBY', keys.sent, what, number) end
  if args.sends and redis.call('PTTL', keys.sent) < 0 then redis.call('PEXPIRE', keys.sent, HOUR_MS) end
  if args.sends and args.sends.sent_messages > 0 then redis.call('HSET', keys.caller, 'said_ms', now_ms()) end
  redis.call('SET', keys.call, result, 'PX', args.call_ms)
  if args.note then
    redis.call('RPUSH', keys.side_effects, args.note)
    redis.call('PEXPIRE', keys.side_effects, args.note_ms)
  end
  return {'done', result}
end
