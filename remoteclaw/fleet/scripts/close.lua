-- Give the lease back and let the session be idle, unless a message came meanwhile.
-- keys: state, inbound, active
-- args: epoch, sid, keep_ms
-- → closed|pending
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'status') ~= 'running' then return 'closed' end  -- said before
if redis.call('XLEN', keys.inbound) > 0 then return 'pending' end
redis.call('HDEL', keys.state, 'status', 'lease_nonce', 'lease_until_ms', 'worker', 'stop_entry', 'last_said_entry',
  'busy_since_ms')
-- Who comes back to a chat that is bound to a project finds it there.
if redis.call('HEXISTS', keys.state, 'project') == 0 then redis.call('PEXPIRE', keys.state, args.keep_ms) end
redis.call('PEXPIRE', keys.inbound, args.keep_ms)  -- its key remembers the last id
redis.call('ZREM', keys.active, args.sid)
return 'closed'
