-- Release the lease of an idle session, unless an entry has arrived.
-- keys: state, inbound, active
-- args: epoch, sid, keep_ms
-- → closed|pending
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'status') ~= 'running' then return 'closed' end  -- a repeated call
if redis.call('XLEN', keys.inbound) > 0 then return 'pending' end
redis.call('HDEL', keys.state, 'status', 'lease_nonce', 'lease_until_ms', 'worker', 'stop_entry', 'last_said_entry',
  'busy_since_ms')
-- The state of a chat that is bound to a project never expires, so that the binding stays.
if redis.call('HEXISTS', keys.state, 'project') == 0 then redis.call('PEXPIRE', keys.state, args.keep_ms) end
redis.call('PEXPIRE', keys.inbound, args.keep_ms)  -- the empty stream remembers its last id
redis.call('ZREM', keys.active, args.sid)
announce_sessions()
return 'closed'
