-- Put an entry on a session's stream. If an unfinished entry of the same `sender` has the same `text`, the call puts
-- none, and that one is its result.
-- uses: entries, calls
-- keys: caller?, call, side_effects?, sent?, inbound, state, active, sessions
-- args: epoch?, turn?, call_ms, note?, note_ms, sid, entry, grace_ms, outcomes, session_key, lane, sender?, text?
-- → as in _calls.lua: entry id, queue if a hint is due, else nothing; "earlier" if no entry was put
local over = answer_call(keys, args)
if over then return over end
for _, each in ipairs(args.sender and redis.call('XRANGE', keys.inbound, '-', '+') or {}) do
  local id, entry = each[1], each[2][2]
  if string.find(entry, args.sender, 1, true) then
    local message = cjson.decode(entry).message
    if message.from == args.sender and message.text == args.text then
      args.note = nil
      return end_call(keys, args, id, '', 'earlier')
    end
  end
end
over = count_call(keys, args, 1)
if over then return over end
return end_call(keys, args, accept(keys, args))
