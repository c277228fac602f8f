-- Put a reply aside that nobody can read, as it is, so that those behind it are delivered.
-- KEYS reader, reply stream, damaged replies; ARGV token, reply id, how many are kept
-- → 0 if it is not there
local token = redis.call('GET', KEYS[1])
if token and token ~= ARGV[1] then
  return redis.error_reply('FENCED another adapter reads this stream')
end
local reply = redis.call('XRANGE', KEYS[2], ARGV[2], ARGV[2])[1]
if not reply then return 0 end
redis.call('XADD', KEYS[3], 'MAXLEN', ARGV[3], '*', 'stream', KEYS[2], 'id', ARGV[2],
  unpack(reply[2]))
redis.call('XDEL', KEYS[2], ARGV[2])
return 1
