-- Change the record of a terminal, and announce the change.
-- keys: state, terminal, terminal_events
-- args: epoch, sid, changes, event?, keep_ms, events_ms
--   changes: fields and their new values, as JSON
-- → 1; 0 if all fields have these values already
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local is_new, now = false, now_ms()
for name, value in pairs(cjson.decode(args.changes)) do
  if redis.call('HGET', keys.terminal, name) ~= value then
    redis.call('HSET', keys.terminal, name, value)
    is_new = true
    if name == 'state' or name == 'activity' then redis.call('HSET', keys.terminal, 'since_ms', now) end
  end
end
redis.call('PEXPIRE', keys.terminal, args.keep_ms)
if not is_new then return 0 end
if args.event then
  redis.call('XADD', keys.terminal_events, 'MAXLEN', '~', 2000, '*', 'event', args.event)
  redis.call('PEXPIRE', keys.terminal_events, args.events_ms)
end
redis.call('PUBLISH', 'rc:terminal-updates', args.sid)
return 1
