-- Begin a session with a copy of what another one remembers: its conversation's ids, each marked,
-- and its record.
-- KEYS state, session map, record of the one; state, session map, record of the new one; sessions
-- ARGV sid of the new one, its session key, keep ms, mark, fields of conversations to copy …
-- → forked | exists | nothing
if redis.call('EXISTS', KEYS[4], KEYS[5], KEYS[6]) > 0 then return 'exists' end
local record = redis.call('GET', KEYS[3])
local copied = 0
for position = 5, #ARGV do
  local id = redis.call('HGET', KEYS[2], ARGV[position])
  if id then
    local marked = string.sub(id, 1, #ARGV[4]) == ARGV[4] and id or ARGV[4] .. id
    redis.call('HSET', KEYS[5], ARGV[position], marked)
    copied = copied + 1
  end
end
if copied == 0 and not record then return 'nothing' end
if copied > 0 then redis.call('PEXPIRE', KEYS[5], ARGV[3]) end
if record then
  redis.call('SET', KEYS[6], record)
  local left = redis.call('PTTL', KEYS[3])
  if left > 0 then redis.call('PEXPIRE', KEYS[6], left) end
end
-- Without an id to go on with, the session says that it has notes alone.
redis.call('HSET', KEYS[4], 'key', ARGV[2], 'remembers', 1, 'heard', now_ms())
local host = redis.call('HGET', KEYS[1], 'host')
if host then redis.call('HSET', KEYS[4], 'host', host) end
redis.call('PEXPIRE', KEYS[4], ARGV[3])
redis.call('ZADD', KEYS[7], now_ms(), ARGV[1])
return 'forked'
