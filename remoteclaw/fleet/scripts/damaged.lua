-- Put a damaged reply aside, as it is, so that those behind it are delivered.
-- keys: reader, replies, damaged
-- args: token, reply, most
-- → 0 if it is not there
local token = redis.call('GET', keys.reader)
if token and token ~= args.token then
  return redis.error_reply('FENCED another adapter reads this stream')
end
local reply = redis.call('XRANGE', keys.replies, args.reply, args.reply)[1]
if not reply then return 0 end
redis.call('XADD', keys.damaged, 'MAXLEN', args.most, '*', 'stream', keys.replies, 'id', args.reply,
  unpack(reply[2]))
redis.call('XDEL', keys.replies, args.reply)
return 1
