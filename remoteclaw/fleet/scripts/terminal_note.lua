-- Tell what a terminal's transcript has behind a position, each record once, whoever reads it.
-- keys: state, record, events
-- args: epoch, sid, before, position, events_ms, told*
-- → 1 if it was told, now or before; 0 if another one is further
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local position = redis.call('HGET', keys.record, 'position') or ''
if position == args.position then return 1 end  -- said before
if position ~= args.before then return 0 end
for _, event in ipairs(args.told) do
  redis.call('XADD', keys.events, 'MAXLEN', '~', 2000, '*', 'event', event)
end
redis.call('HSET', keys.record, 'position', args.position)
redis.call('PEXPIRE', keys.events, args.events_ms)
redis.call('PUBLISH', 'rc:tty', args.sid)
return 1
