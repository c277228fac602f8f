-- Record how far a reply has been sent, or remove the mark of a reply of which nothing was sent, unless another delivery
-- has recorded another mark since. A mark begins with the name of its delivery. A preview that has become part of the
-- reply is removed from the previews.
-- keys: reader, replies, delivery_marks, previews
-- args: token, claim_ms, reply, by, instead_of?, mark?, preview?
--   by: the name of this delivery; instead_of: the mark that it has read
-- → 1 if it is recorded; 0 if the reply is gone; else the other delivery's mark
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
redis.call('SET', keys.reader, args.token, 'PX', args.claim_ms)
if #redis.call('XRANGE', keys.replies, args.reply, args.reply) == 0 then
  redis.call('HDEL', keys.delivery_marks, args.reply)
  return 0
end
local noted = redis.call('HGET', keys.delivery_marks, args.reply)
if noted and noted ~= args.instead_of and string.sub(noted, 1, #args.by) ~= args.by then return noted end
if args.preview then redis.call('HDEL', keys.previews, args.preview) end
if args.mark then
  redis.call('HSET', keys.delivery_marks, args.reply, args.mark)
else
  redis.call('HDEL', keys.delivery_marks, args.reply)
end
return 1
