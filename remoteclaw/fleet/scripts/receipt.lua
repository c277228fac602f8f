-- A reply was delivered: remove it and its files, and note the time with every entry that it answers.
-- If a call wrote it, the caller is told what came of it.
-- keys: reader, replies, receipts?, outcomes*, blobs*
-- args: token, reply, answer?, answer_ms
local token = redis.call('GET', keys.reader)
if token and token ~= args.token then  -- a claim that only ran out is renewed so
  return redis.error_reply('FENCED another adapter reads this stream')
end
local now = now_ms()
if redis.call('XDEL', keys.replies, args.reply) == 0 then return 0 end
for _, outcome in ipairs(keys.outcomes) do
  if redis.call('EXISTS', outcome) == 1 then redis.call('HSETNX', outcome, 'delivered', now) end
end
for _, blob in ipairs(keys.blobs) do redis.call('UNLINK', blob) end
if args.answer then
  redis.call('XADD', keys.receipts, '*', 'id', keys.replies .. ' ' .. args.reply, 'answer', args.answer)
  redis.call('PEXPIRE', keys.receipts, args.answer_ms)
end
return 1
