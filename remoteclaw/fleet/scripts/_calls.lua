-- The scripts call_*.lua perform tool calls: each call once, and only while the turn that makes it runs. They also
-- add a side effect to the turn. All of them have these keys and arguments:
-- keys: caller?, call, side_effects?, sent?: the caller's state, the result of the call, the side effects of the turn,
--   and the counts of what the chat's tools have sent within the hour; an operator gives only the call
-- args: epoch?, turn?, call_ms, note?, note_ms: call_ms is how long the result is kept, note the side effect as JSON,
--   and note_ms how long it is kept
-- → done|again, the results, one per line; or why nothing was done:
--   no room: the server is too full; too much: messages|bytes, the number that would have been sent, and the maximum

-- The maximum that the tools of a chat's turns may send within an hour.
local MAX_OF_HOUR = {sent_messages = 300, sent_bytes = 4 * 1024 * 1024}

-- Refuse a call whose turn doesn't run, and repeat the result of a call that was performed.
-- → the script's reply; nothing if the call is to be performed
local function answer_call(keys, args)
  if args.epoch then
    local fence = fenced(keys.caller, args.epoch)
    if fence then return fence end
    local running = redis.call('HMGET', keys.caller, 'status', 'turn', 'batch')
    local batch = split(running[3] or '')
    if batch[1] and is_stopped(keys.caller, batch[#batch]) then
      return redis.error_reply('FENCED turn ' .. args.turn .. ' was stopped')
    end
    if running[1] ~= 'running' or running[2] ~= args.turn then
      return redis.error_reply('FENCED turn ' .. args.turn .. ' is not running')
    end
  end
  local result = redis.call('GET', keys.call)
  return result and {'again', result}
end

-- Refuse a call for which there is no room, or which sends too much; note the numbers for end_call.
-- `messages` is the number of messages that it sends; the size of its arguments counts as the bytes.
-- → the script's reply; nothing if the call is to be performed
local function count_call(keys, args, messages)
  if is_full_for(args.epoch and 'tools' or 'messages') then return {'no room', ''} end
  if not args.epoch then return nil end
  args.sends = {sent_messages = messages, sent_bytes = 0}
  for _, value in ipairs(ARGV) do args.sends.sent_bytes = args.sends.sent_bytes + #value end
  for unit, number in pairs(args.sends) do
    local sum, max = number + (tonumber(redis.call('HGET', keys.sent, unit)) or 0), MAX_OF_HOUR[unit]
    if sum > max then return {'too much', table.concat({string.sub(unit, 6), sum, max}, '\n')} end
  end
end

-- Both checks, for a call that always sends.
local function begin_call(keys, args, messages)
  return answer_call(keys, args) or count_call(keys, args, messages)
end

-- Store the results of a call, and add its side effect to the turn. → the script's reply
local function end_call(keys, args, ...)
  local result = table.concat({...}, '\n')
  for unit, number in pairs(args.sends or {}) do redis.call('HINCRBY', keys.sent, unit, number) end
  if args.sends and redis.call('PTTL', keys.sent) < 0 then redis.call('PEXPIRE', keys.sent, HOUR_MS) end
  if args.sends and args.sends.sent_messages > 0 then redis.call('HSET', keys.caller, 'said_ms', now_ms()) end
  redis.call('SET', keys.call, result, 'PX', args.call_ms)
  if args.note then
    redis.call('RPUSH', keys.side_effects, args.note)
    redis.call('PEXPIRE', keys.side_effects, args.note_ms)
  end
  return {'done', result}
end
