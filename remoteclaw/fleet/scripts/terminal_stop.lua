-- Stop a session's terminal, and no other entry of the session. The holder's host ends the terminal.
-- keys: state, bell
-- → 1; 0 if no holder has the session
local held, turn, stop = unpack(redis.call('HMGET', keys.state, 'held', 'turn', 'stop_entry'))
if not held or not turn then return 0 end
-- A stop mark at a later entry covers the terminal already.
if not (stop and id_at_most(turn, stop)) then redis.call('HSET', keys.state, 'stop_entry', turn) end
redis.call('PUBLISH', keys.bell, '')
return 1
