-- Stop a session's terminal, and no other entry of the session. The holder's host ends the terminal.
-- keys: state, bell
-- → 1; 0 if no holder has the session
local held, turn = unpack(redis.call('HMGET', keys.state, 'held', 'turn'))
if not held or not turn then return 0 end
-- Not the stop mark, which covers earlier entries as well, and a kept batch is earlier.
redis.call('HSET', keys.state, 'stopped_terminal', turn)
redis.call('PUBLISH', keys.bell, '')
return 1
