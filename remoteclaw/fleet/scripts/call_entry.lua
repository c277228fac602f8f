-- Put an entry on a session's stream. If an unfinished entry of the same `sender` has the same `text`, the call puts
-- none, and that one is its result.
-- uses: entries, calls
-- keys: caller_state?, call, caller_side_effects?, sent?, inbound, state, active, sessions, outcome
-- args: epoch?, turn?, call_ms, effect?, effect_ms, sid, entry, grace_ms, session_key, lane, sender?, text?
-- result: status, values
--   values: entry_id, queue for the hint that is due, if any, is_earlier if no entry was put
local over = answer_call(keys, args)
if over then return over end
for _, each in ipairs(args.sender and redis.call('XRANGE', keys.inbound, '-', '+') or {}) do
  local id, entry = each[1], each[2][2]
  if string.find(entry, args.sender, 1, true) then
    local message = cjson.decode(entry).message
    if message.from == args.sender and message.text == args.text then
      args.effect = nil
      return end_call(keys, args, {entry_id = id, is_earlier = true})
    end
  end
end
over = count_call(keys, args, 1)
if over then return over end
local id, queue = accept(keys, args)
return end_call(keys, args, {entry_id = id, queue = queue})
