-- A reply was delivered, or never can be: remove it and its files, and note that with every entry that it
-- answers. What the platform has of it leads back to it. If a call wrote it, the caller is told what came
-- of it; else what is given up becomes a dead letter. A request that its chat does not show is told of in its
-- conversation.
-- uses: replies
-- keys: reader, replies, marks, previews, dead_letters?, state, receipts?, ask?, asked_in, history?, outcomes*, blobs*, said*
-- args: token, reply, ids?, shown?, answer?, answer_ms, about, said_ms, category?, why?, mark?, preview?,
--   line?, most, keep_ms, request?, is_agents, shown_ms
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
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
if keys.ask and redis.call('EXISTS', keys.ask) == 1 then
  local state, here, unreached = unpack(redis.call('HMGET', keys.ask, 'state', 'here_replies', 'unreached'))
  if args.shown then redis.call('HSET', keys.ask, 'shown', args.shown) end
  if here and not args.category then
    redis.call('ZADD', keys.asked_in, now, args.request)
    redis.call('ZREMRANGEBYRANK', keys.asked_in, 0, -101)
    redis.call('PEXPIRE', keys.asked_in, args.shown_ms)
  elseif here then
    redis.call('HSET', keys.ask, 'unshown', args.why)
    if state == 'open' or state == 'lapsed' then put_reply(here, unreached) end
  end
elseif args.is_agents == '1' and redis.call('EXISTS', keys.asked_in) == 1 then
  redis.call('ZADD', keys.asked_in, now, '')
end
if keys.history then
  redis.call('XADD', keys.history, 'MAXLEN', args.most, '*', 'name', '', 'line', args.line)
  redis.call('PEXPIRE', keys.history, args.keep_ms)
end
if args.answer then
  redis.call('XADD', keys.receipts, '*', 'id', keys.replies .. ' ' .. args.reply, 'answer', args.answer)
  redis.call('PEXPIRE', keys.receipts, args.answer_ms)
end
return 1
