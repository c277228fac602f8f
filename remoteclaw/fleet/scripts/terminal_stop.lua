-- Have a session's terminal ended, and nothing else that it has accepted: the holder's host does that.
-- keys: state, bell
-- → 1; 0 if no holder has the session
local held, turn, stop = unpack(redis.call('HMGET', keys.state, 'held', 'turn', 'stop_entry'))
if not held or not turn then return 0 end
-- What was stopped up to a later entry has stopped it, too.
if not (stop and id_at_most(turn, stop)) then redis.call('HSET', keys.state, 'stop_entry', turn) end
redis.call('PUBLISH', keys.bell, '')
return 1
