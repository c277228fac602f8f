-- The scripts call_*.lua perform tool calls: each call once, and only while the turn that makes it runs. They also
-- add a side effect to the turn. All of them have these keys and arguments:
-- keys: caller_state?, call, caller_side_effects?, sent?: the caller's state, the result of the call, the side effects of the turn,
--   and the counts of what the chat's tools have sent within the hour; an operator gives only the call
-- args: epoch?, turn?, call_ms, effect?, effect_ms: call_ms is how long the result is kept, effect the side effect as JSON,
--   and effect_ms how long it is kept
-- result: status, values
--   status: done|again, or why nothing was done; values: by name, as JSON
--   no room: the server is too full; too much: `unit` is messages|bytes, `number` would have been sent, `max` may be

-- The maximum that the tools of a chat's turns may send within an hour.
local MAX_OF_HOUR = {sent_messages = 300, sent_bytes = 4 * 1024 * 1024}

-- Refuse a call whose turn doesn't run, and repeat the result of a call that was performed.
-- → the script's reply; nothing if the call is to be performed
local function answer_call(keys, args)
  if args.epoch then
    local fence = fenced(keys.caller_state, args.epoch)
    if fence then return fence end
    local running = redis.call('HMGET', keys.caller_state, 'status', 'turn', 'batch')
    local batch = split(running[3] or '')
    if batch[1] and is_stopped(keys.caller_state, batch[#batch]) then
      return redis.error_reply('FENCED turn ' .. args.turn .. ' was stopped')
    end
    if running[1] ~= 'running' or running[2] ~= args.turn then
      return redis.error_reply('FENCED turn ' .. args.turn .. ' is not running')
    end
  end
  local values = redis.call('GET', keys.call)
  return values and result{status = 'again', values = values}
end

-- Refuse a call for which there is no room, or which sends too much; note the numbers for end_call.
-- `messages` is the number of messages that it sends; the size of its arguments counts as the bytes.
-- → the script's reply; nothing if the call is to be performed
local function count_call(keys, args, messages)
  if is_full_for(args.epoch and 'tools' or 'messages') then return result{status = 'no room'} end
  if not args.epoch then return nil end
  args.sends = {sent_messages = messages, sent_bytes = 0}
  for _, value in ipairs(ARGV) do args.sends.sent_bytes = args.sends.sent_bytes + #value end
  for unit, number in pairs(args.sends) do
    local sum, max = number + (tonumber(redis.call('HGET', keys.sent, unit)) or 0), MAX_OF_HOUR[unit]
    if sum > max then
      return result{status = 'too much', values = cjson.encode{unit = string.sub(unit, 6), number = sum, max = max}}
    end
  end
end

-- Both checks, for a call that always sends.
local function begin_call(keys, args, messages)
  return answer_call(keys, args) or count_call(keys, args, messages)
end

-- Store the result of a call, and add its side effect to the turn. → the script's reply
local function end_call(keys, args, values)
  local json = cjson.encode(values)
  for unit, number in pairs(args.sends or {}) do redis.call('HINCRBY', keys.sent, unit, number) end
  if args.sends and redis.call('PTTL', keys.sent) < 0 then redis.call('PEXPIRE', keys.sent, HOUR_MS) end
  if args.sends and args.sends.sent_messages > 0 then redis.call('HSET', keys.caller_state, 'said_ms', now_ms()) end
  redis.call('SET', keys.call, json, 'PX', args.call_ms)
  if args.effect then
    redis.call('RPUSH', keys.caller_side_effects, args.effect)
    redis.call('PEXPIRE', keys.caller_side_effects, args.effect_ms)
  end
  return result{status = 'done', values = json}
end
