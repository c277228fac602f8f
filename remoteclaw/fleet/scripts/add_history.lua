-- Add an entry to a chat's history, once for each name, because a message may be handled again after a crash.
-- keys: history
-- args: name, line, max_entries, keep_ms, max_searched
-- → the entries before it, newest first
local before = redis.call('XREVRANGE', keys.history, '+', '-', 'COUNT', args.max_searched)
for position, entry in ipairs(before) do
  if entry[2][2] == args.name then return {unpack(before, position + 1)} end
end
redis.call('XADD', keys.history, 'MAXLEN', args.max_entries, '*', 'name', args.name, 'line', args.line)
redis.call('PEXPIRE', keys.history, args.keep_ms)
return before
