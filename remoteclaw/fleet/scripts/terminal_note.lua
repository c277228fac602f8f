-- Publish the items of a terminal's transcript after the position `before`, each once, even if several processes read it.
-- keys: state, terminal, terminal_events
-- args: epoch, sid, before, position, events_ms, new_events*
--   position: the position after the items
-- → 1 if they are published, now or by an earlier call; 0 if another process has published from `before` already
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local position = redis.call('HGET', keys.terminal, 'position') or ''
if position == args.position then return 1 end  -- a repeated call
if position ~= args.before then return 0 end
for _, event in ipairs(args.new_events) do
  redis.call('XADD', keys.terminal_events, 'MAXLEN', '~', 2000, '*', 'event', event)
end
redis.call('HSET', keys.terminal, 'position', args.position)
redis.call('PEXPIRE', keys.terminal_events, args.events_ms)
redis.call('PUBLISH', 'rc:terminal-updates', args.sid)
return 1
