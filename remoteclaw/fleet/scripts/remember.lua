-- Keep (or, with an empty id, drop) the CLI's session id for a runtime and workspace.
-- KEYS state, session map; ARGV epoch, field, session id, keep ms
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[2], ARGV[2])
  redis.call('HDEL', KEYS[1], 'remembers')
else
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
  redis.call('HSET', KEYS[1], 'remembers', 1)
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
return 1
