-- Give a session a label, or take it away.
-- KEYS state, labels of its agent; ARGV sid, label (nothing: none)
-- → the key of the session that has the label, if that is another one, else nothing
if ARGV[2] == '' then
  local label = redis.call('HGET', KEYS[1], 'label')
  if label then redis.call('HDEL', KEYS[2], label) end
  redis.call('HDEL', KEYS[1], 'label')
  return ''
end
local owner = name_it(KEYS[2], ARGV[2], ARGV[1], KEYS[1])
return owner and key_of('rc:st:{' .. owner .. '}') or ''
