-- Read sessions at one moment.
-- keys: sessions
-- args: sids*
-- row: state, waiting, last_message_ms, session_map
--   state, session_map: fields and values in turn, none if the session is not known; waiting: the number of entries
local found = {}
for position, sid in ipairs(args.sids) do
  found[position] = row{
    state = redis.call('HGETALL', 'rc:state:{' .. sid .. '}'),
    waiting = redis.call('XLEN', 'rc:inbound:{' .. sid .. '}'),
    last_message_ms = redis.call('ZSCORE', keys.sessions, sid) or '0',
    session_map = redis.call('HGETALL', 'rc:session-map:{' .. sid .. '}'),
  }
end
return found
