-- Note what passed through a chat, once: a message may be taken in again.
-- keys: history
-- args: name, line, most, keep_ms, look_back
-- → what passed before it, newest first
local before = redis.call('XREVRANGE', keys.history, '+', '-', 'COUNT', args.look_back)
for place, entry in ipairs(before) do
  if entry[2][2] == args.name then return {unpack(before, place + 1)} end
end
redis.call('XADD', keys.history, 'MAXLEN', args.most, '*', 'name', args.name, 'line', args.line)
redis.call('PEXPIRE', keys.history, args.keep_ms)
return before
