-- Change an agent's memory, or undo its last change, unless the memory has changed since it was read.
-- uses: calls
-- keys: caller_state?, call, caller_side_effects?, sent?, caller_outcome?, memory, memory_log
-- args: epoch?, turn?, call_ms, effect?, effect_ms, base, text?, change?, detail?, max_log
-- result: status, values
--   base: the version that was read; text: the new text, and change: the change as JSON; without them, the last change is
--   undone; detail: what the trace of the turn's messages has
--   status also: stale|nothing; values: version, and undone: the change that was undone
local over = begin_call(keys, args, 1)  -- the chat gets a notice about it
if over then return over end
if (redis.call('HGET', keys.memory, 'version') or '0') ~= args.base then return result{status = 'stale'} end
local text, undone = args.text, nil
if args.change then
  redis.call('LPUSH', keys.memory_log, args.change)
  redis.call('LTRIM', keys.memory_log, 0, args.max_log - 1)
else
  undone = redis.call('LPOP', keys.memory_log)
  if not undone then return result{status = 'nothing'} end
  text = cjson.decode(undone).before
end
redis.call('HSET', keys.memory, 'text', text or '')
local version = redis.call('HINCRBY', keys.memory, 'version', 1)
if args.detail and keys.caller_outcome then
  local batch, attempt = unpack(redis.call('HMGET', keys.caller_state, 'batch', 'attempt'))
  for _, id in ipairs(split(batch or '')) do
    local step = 'remembered.' .. (attempt or '1')
    local before = redis.call('HGET', keys.caller_outcome .. id, step)
    local detail = before and before .. '; ' .. args.detail or now_ms() .. ' ' .. args.detail
    redis.call('HSET', keys.caller_outcome .. id, step, detail)
  end
end
return end_call(keys, args, {version = version, undone = undone})
