-- Answer a request; the first answer counts. If the turn waits, it receives the answer. If not, an allowed call passes
-- once later, and an entry wakes the session. A change of the configuration is only answered here: close_change.lua closes it.
-- uses: replies, requests, entries
-- keys: request, requests, changes, state, inbound, active, sessions, rules, grants, unreported_denials, outcome, bell
-- args: request_id, answer, by, message, verdict, remembered, words, sid, entry, grace_ms, session_key, lane, holders*
-- result: status, state, answer, queue
--   by: the person and the answer as one name, which identifies a repetition
--   message: the platform's id of the message that answers, if one does
--   remembered: the permission for the conversation, as JSON; holders: the people for whom it is
--   words: the new text of the messages that show the request
--   status: done|late; answer: the answer as JSON; queue: for the hint that is due, if any
local state, turn, digest, rule, until_ms, by, before = unpack(redis.call('HMGET', keys.request, 'state', 'turn', 'digest',
  'rule', 'until_ms', 'by', 'answer'))
if not state then return result{status = 'late', state = 'gone'} end
if by == args.by then
  return result{status = 'done', state = state, answer = before, queue = queue_if_scheduled(keys.state)}
end
if state ~= 'open' and state ~= 'lapsed' then return result{status = 'late', state = state, answer = before} end
local now = now_ms()
if turn ~= '' and is_stopped(keys.state, turn) then
  close_request(args.request_id, 'void', 'It was stopped.')
  return result{status = 'late', state = 'void'}
end
if (state == 'lapsed' or turn == '') and tonumber(until_ms) <= now then
  close_request(args.request_id, 'expired', 'Nobody answered in time.')
  return result{status = 'late', state = 'expired'}
end
redis.call('HSET', keys.request, 'answer', args.answer, 'by', args.by, 'answered_ms', now,
  'message', args.message, 'holders', table.concat(args.holders, '\n'))
keep_request(keys.request)
if args.verdict == 'conversation' or args.verdict == 'edits' then
  for _, holder in ipairs(args.holders) do
    redis.call('HSET', keys.rules, rule_of(args.verdict == 'edits' and 'edits' or rule, holder), args.remembered)
  end
  redis.call('PEXPIRE', keys.rules, redis.call('HGET', keys.request, 'keep_ms'))
end
if turn ~= '' and args.verdict == 'deny' and cjson.decode(args.answer).words ~= '' then
  redis.call('HSET', keys.unreported_denials, args.request_id, '')
  redis.call('PEXPIRE', keys.unreported_denials, redis.call('HGET', keys.request, 'keep_ms'))
end
if turn ~= '' then show_closed(keys.request, args.words) end
if state == 'open' then
  redis.call('HSET', keys.request, 'state', 'answered')
  -- It stays answered until the turn takes the answer; if the worker dies before, the next attempt takes it.
  redis.call('ZREM', keys.requests, args.request_id)
  announce_request(args.request_id)
  if turn == '' then redis.call('SADD', keys.changes, args.request_id) else redis.call('PUBLISH', keys.bell, '') end
  return result{status = 'done', state = 'answered', answer = args.answer}
end
if args.verdict == 'deny' then
  close_request(args.request_id, 'denied')
  return result{status = 'done', state = 'denied', answer = args.answer}
end
if args.verdict == 'once' or args.verdict == 'edits' then
  redis.call('HSET', keys.request, 'state', 'granted', 'until_ms', now + GRANT_MS)
  redis.call('ZADD', keys.requests, now + GRANT_MS, args.request_id)
  announce_request(args.request_id)
  redis.call('HSET', keys.grants, digest, args.request_id)
  redis.call('PEXPIRE', keys.grants, GRANT_MS)
else
  close_request(args.request_id, 'used')
end
local _, queue = accept(keys, args)
return result{status = 'done', state = redis.call('HGET', keys.request, 'state'), answer = args.answer, queue = queue}
