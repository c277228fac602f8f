-- Note how far a reply has been sent, or that nothing of it was begun: unless another delivery has noted
-- something else since. A note begins with the name of the delivery that has made it. A preview that has
-- become a part is none any more.
-- keys: reader, replies, marks, previews
-- args: token, claim_ms, reply, by, instead_of?, mark?, preview?
-- → 1 if it is noted; 0 if the reply is gone; else the other delivery's note
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
redis.call('SET', keys.reader, args.token, 'PX', args.claim_ms)
if #redis.call('XRANGE', keys.replies, args.reply, args.reply) == 0 then
  redis.call('HDEL', keys.marks, args.reply)
  return 0
end
local noted = redis.call('HGET', keys.marks, args.reply)
if noted and noted ~= args.instead_of and string.sub(noted, 1, #args.by) ~= args.by then return noted end
if args.preview then redis.call('HDEL', keys.previews, args.preview) end
if args.mark then
  redis.call('HSET', keys.marks, args.reply, args.mark)
else
  redis.call('HDEL', keys.marks, args.reply)
end
return 1
