-- Put an entry on a session's stream.
-- uses: entries, calls
-- keys: caller?, call, side_effects?, sent?, inbound, state, active, sessions
-- args: epoch?, turn?, call_ms, note?, note_ms, sid, entry, grace_ms, outcomes, session_key, lane
-- → as in _calls.lua: entry id, queue if a hint is due, else nothing
local over = begin_call(keys, args, 1)
if over then return over end
return end_call(keys, args, accept(keys, args))
