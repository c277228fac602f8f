-- A reply was delivered, or never can be: remove it and its files, and note that with every entry that it
-- answers. What the platform has of it leads back to it. If a call wrote it, the caller is told what came
-- of it; else what is given up becomes a dead letter.
-- keys: reader, replies, marks, previews, dead_letters?, state, receipts?, ask?, history?, outcomes*, blobs*, said*
-- args: token, reply, ids?, shown?, answer?, answer_ms, about, said_ms, category?, why?, mark?, preview?,
--   line?, most, keep_ms
local token = redis.call('GET', keys.reader)
if token and token ~= args.token then  -- a claim that only ran out is renewed so
  return redis.error_reply('FENCED another adapter reads this stream')
end
local now = now_ms()
redis.call('HDEL', keys.marks, args.reply)
if args.preview then redis.call('HDEL', keys.previews, args.preview) end
local letter = keys.dead_letters and redis.call('XRANGE', keys.replies, args.reply, args.reply)[1]
if redis.call('XDEL', keys.replies, args.reply) == 0 then return 0 end
for _, outcome in ipairs(keys.outcomes) do
  if redis.call('EXISTS', outcome) == 1 then
    if args.why then
      redis.call('HSETNX', outcome, 'undelivered', now .. ' ' .. args.why)
    else
      redis.call('HSETNX', outcome, 'delivered', args.ids and now .. ' as ' .. args.ids or now)
    end
  end
end
if letter then
  redis.call('XADD', keys.dead_letters, '*', 'stream', keys.replies, 'reply', letter[2][2], 'id', args.reply,
    'key', redis.call('HGET', keys.state, 'key') or '', 'category', args.category, 'why', args.why,
    'mark', args.mark or '')
end
for _, blob in ipairs(keys.blobs) do redis.call('UNLINK', blob) end
for _, said in ipairs(keys.said) do redis.call('SET', said, args.about, 'PX', args.said_ms) end
if keys.ask and args.shown and redis.call('EXISTS', keys.ask) == 1 then redis.call('HSET', keys.ask, 'shown', args.shown) end
if keys.history then
  redis.call('XADD', keys.history, 'MAXLEN', args.most, '*', 'name', '', 'line', args.line)
  redis.call('PEXPIRE', keys.history, args.keep_ms)
end
if args.answer then
  redis.call('XADD', keys.receipts, '*', 'id', keys.replies .. ' ' .. args.reply, 'answer', args.answer)
  redis.call('PEXPIRE', keys.receipts, args.answer_ms)
end
return 1
