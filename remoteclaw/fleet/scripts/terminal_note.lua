-- Publish the items of a terminal's transcript after the position `before`, each once, even if several processes read it.
-- keys: state, record, events
-- args: epoch, sid, before, position, events_ms, new_events*
--   position: the position after the items
-- → 1 if they are published, now or by an earlier call; 0 if another process has published from `before` already
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local position = redis.call('HGET', keys.record, 'position') or ''
if position == args.position then return 1 end  -- a repeated call
if position ~= args.before then return 0 end
for _, event in ipairs(args.new_events) do
  redis.call('XADD', keys.events, 'MAXLEN', '~', 2000, '*', 'event', event)
end
redis.call('HSET', keys.record, 'position', args.position)
redis.call('PEXPIRE', keys.events, args.events_ms)
redis.call('PUBLISH', 'rc:tty', args.sid)
return 1
