-- Answer a request: the first answer counts. A turn that waits hears it; else what was allowed passes once, and the
-- session is woken to go on. A change of the configuration is not done by that: `made` says what became of it.
-- uses: replies, asks, entries
-- keys: ask, asks, changes, state, inbound, active, sessions, rules, grants, unheard
-- args: id, answer, by, message, verdict, remembered, words, sid, entry, grace_ms, outcomes, session_key, lane, bell
--   by: who answers, and what, as one name: the same again is the same answer
--   message: the platform's id of the message that answers, if one does
-- → done|late, state, answer as JSON, queue if a hint is due, else nothing
local state, turn, digest, rule, until_ms, by, before = unpack(redis.call('HMGET', keys.ask, 'state', 'turn', 'digest',
  'rule', 'until_ms', 'by', 'answer'))
if not state then return {'late', 'gone', '', ''} end
if by == args.by then return {'done', state, before, queue_if_scheduled(keys.state)} end
if state ~= 'open' and state ~= 'lapsed' then return {'late', state, before or '', ''} end
local now = now_ms()
if turn ~= '' and id_at_most(turn, redis.call('HGET', keys.state, 'stop_entry')) then
  close_ask(args.id, 'void', 'It was stopped.')
  return {'late', 'void', '', ''}
end
if (state == 'lapsed' or turn == '') and tonumber(until_ms) <= now then
  close_ask(args.id, 'expired', 'Nobody answered in time.')
  return {'late', 'expired', '', ''}
end
redis.call('HSET', keys.ask, 'answer', args.answer, 'by', args.by, 'answered_ms', now,
  'message', args.message)
keep_ask(keys.ask)
if args.verdict == 'conversation' or args.verdict == 'edits' then
  redis.call('HSET', keys.rules, args.verdict == 'edits' and 'edits' or rule, args.remembered)
  redis.call('PEXPIRE', keys.rules, redis.call('HGET', keys.ask, 'keep_ms'))
end
if turn ~= '' and args.verdict == 'deny' and cjson.decode(args.answer).words ~= '' then
  redis.call('HSET', keys.unheard, args.id, '')
  redis.call('PEXPIRE', keys.unheard, redis.call('HGET', keys.ask, 'keep_ms'))
end
if turn ~= '' then tell_closed(keys.ask, args.words) end
if state == 'open' then
  redis.call('HSET', keys.ask, 'state', 'answered')
  -- Until it is taken: a worker that dies meanwhile leaves that to the next attempt.
  redis.call('ZREM', keys.asks, args.id)
  if turn == '' then redis.call('SADD', keys.changes, args.id) else redis.call('PUBLISH', args.bell, '') end
  return {'done', 'answered', args.answer, ''}
end
if args.verdict == 'deny' then
  close_ask(args.id, 'denied')
  return {'done', 'denied', args.answer, ''}
end
if args.verdict == 'once' or args.verdict == 'edits' then
  redis.call('HSET', keys.ask, 'state', 'granted', 'until_ms', now + GRANT_MS)
  redis.call('ZADD', keys.asks, now + GRANT_MS, args.id)
  redis.call('HSET', keys.grants, digest, args.id)
  redis.call('PEXPIRE', keys.grants, GRANT_MS)
else
  close_ask(args.id, 'used')
end
local _, queue = accept(keys, args)
return {'done', redis.call('HGET', keys.ask, 'state'), args.answer, queue}
