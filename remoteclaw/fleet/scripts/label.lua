-- Set or remove a session's label.
-- uses: sessions
-- keys: state, labels
-- args: sid, label?
-- → the key of another session that has the label, else nothing
announce_sessions()
if not args.label then
  local label = redis.call('HGET', keys.state, 'label')
  if label then redis.call('HDEL', keys.labels, label) end
  redis.call('HDEL', keys.state, 'label')
  return ''
end
local owner = set_label(keys.labels, args.label, args.sid, keys.state)
return owner and redis.call('HGET', 'rc:state:{' .. owner .. '}', 'key') or ''
