-- Give a session a label, or take it away.
-- uses: sessions
-- keys: state, labels
-- args: sid, label?
-- → the key of the session that has the label, if that is another one, else nothing
if not args.label then
  local label = redis.call('HGET', keys.state, 'label')
  if label then redis.call('HDEL', keys.labels, label) end
  redis.call('HDEL', keys.state, 'label')
  return ''
end
local owner = name_it(keys.labels, args.label, args.sid, keys.state)
return owner and redis.call('HGET', 'rc:st:{' .. owner .. '}', 'key') or ''
