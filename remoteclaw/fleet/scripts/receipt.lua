-- Remove a reply that was delivered, or that never can be, with its files; note that in the outcome of every entry that
-- it answers. The platform's ids of its messages lead back to its turn. If a tool call sent the reply, the caller gets a
-- receipt; otherwise an undeliverable reply becomes a dead letter. If the reply is a request of another conversation,
-- that conversation gets a notice: that a person is asked here, or that the chat can't show it.
-- uses: replies, metrics
-- keys: reader, replies, delivery_marks, previews, dead_letters?, state, receipts?, request?, shown_requests, history?,
--   notified, notice_replies?, metrics, outcomes*, blobs*, message_origins*
-- args: token, reply, ids?, shown?, answer?, answer_ms, origin, origin_ms, category?, why?, mark?, preview?,
--   line?, max_entries, keep_ms, request_id?, is_agents, shown_ms, is_seen, person, is_next, notice?, notified_ms,
--   provider, buckets
--   ids: the platform's ids of the messages; shown: the id of the message that shows the request; answer: the receipt for
--   the caller; origin: the session, turn and entries of the reply; category, why: of a reply that can't be delivered;
--   line: the entry for the chat's history; is_agents: whether an agent has written the reply;
--   is_seen: whether the chat has got something; notice: the payload of the notice about a failure, for `person`;
--   is_next: whether the reply is itself such a notice, which a chat has refused
-- → 1; 0 if the reply is gone
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
local now = now_ms()
redis.call('HDEL', keys.delivery_marks, args.reply)
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
  announce_sessions()
end
for _, blob in ipairs(keys.blobs) do redis.call('UNLINK', blob) end
for _, origin in ipairs(keys.message_origins) do redis.call('SET', origin, args.origin, 'PX', args.origin_ms) end
if keys.request and redis.call('EXISTS', keys.request) == 1 then
  local state, here, shown_elsewhere, unreached = unpack(redis.call('HMGET', keys.request, 'state', 'here_replies',
    'shown_elsewhere', 'unreached'))
  if args.shown then redis.call('HSET', keys.request, 'shown', args.shown) end
  if here and not args.category then
    redis.call('ZADD', keys.shown_requests, now, args.request_id)
    redis.call('ZREMRANGEBYRANK', keys.shown_requests, 0, -101)
    redis.call('PEXPIRE', keys.shown_requests, args.shown_ms)
  elseif here then
    redis.call('HSET', keys.request, 'unshown', args.why)
    redis.call('PUBLISH', 'rc:request-updates', args.request_id)
  end
  local notice = args.category and unreached or shown_elsewhere
  if here and notice ~= '' and (state == 'open' or state == 'lapsed') then put_reply(here, notice) end
elseif args.is_agents == '1' and redis.call('EXISTS', keys.shown_requests) == 1 then
  redis.call('ZADD', keys.shown_requests, now, '')
end
if keys.history then
  redis.call('XADD', keys.history, 'MAXLEN', args.max_entries, '*', 'name', '', 'line', args.line)
  redis.call('PEXPIRE', keys.history, args.keep_ms)
end
if args.is_seen == '1' then
  redis.call('UNLINK', keys.notified)
elseif args.notice and (args.is_next == '1' or redis.call('HSETNX', keys.notified, args.person, now) == 1) then
  redis.call('PEXPIRE', keys.notified, args.notified_ms)
  put_reply(keys.notice_replies, args.notice)
end
if not args.category then
  local counted = {}
  observe(counted, 'delivery/' .. args.provider, now - tonumber(string.match(args.reply, '^%d+')), args.buckets)
  add_metrics(keys.metrics, counted)
end
if args.answer then
  redis.call('XADD', keys.receipts, '*', 'id', keys.replies .. ' ' .. args.reply, 'answer', args.answer)
  redis.call('PEXPIRE', keys.receipts, args.answer_ms)
end
return 1
