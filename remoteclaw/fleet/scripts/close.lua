-- Give the lease back and let the session be idle, unless a message came meanwhile.
-- KEYS state, inbound, active; ARGV epoch, sid, keep ms → closed|pending
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
if redis.call('HGET', KEYS[1], 'state') ~= 'running' then return 'closed' end  -- said before
if redis.call('XLEN', KEYS[2]) > 0 then return 'pending' end
redis.call('HDEL', KEYS[1], 'state', 'nonce', 'expires', 'worker', 'stop', 'said',
  'busy_since')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])  -- its key remembers the last id
redis.call('ZREM', KEYS[3], ARGV[2])
return 'closed'
