-- Answer a request about a budget; the first answer counts. It takes effect in the same step: the sessions that wait for
-- the budget are woken.
-- uses: replies, requests, sessions
-- keys: request, active, budget
-- args: request_id, budget_id, answer, by, message, verdict, words
-- result: status, state, answer, woken
-- row: session_key, queue
--   by, message, words, and status, state, answer: as in answer.lua
--   verdict: once adds half of the limit, conversation lifts the limit, deny refuses messages, until the period ends
--   woken: the sessions for which a hint is due
local state, by, before, until_ms = unpack(redis.call('HMGET', keys.request, 'state', 'by', 'answer', 'until_ms'))
if by == args.by then return result{status = 'done', state = state, answer = before, woken = {}} end
if state ~= 'open' then return result{status = 'late', state = state or 'gone', answer = before, woken = {}} end
if tonumber(until_ms) <= now_ms() then
  close_request(args.request_id, 'expired', 'Nobody answered in time.')
  return result{status = 'late', state = 'expired', woken = {}}
end
if redis.call('HGET', keys.budget, 'request') ~= args.request_id then
  close_request(args.request_id, 'void', 'Nothing waits for this any more.')
  return result{status = 'late', state = 'void', woken = {}}
end
redis.call('HSET', keys.request, 'answer', args.answer, 'by', args.by, 'answered_ms', now_ms(), 'message', args.message)
redis.call('HDEL', keys.budget, 'request')
if args.verdict == 'once' then
  redis.call('HINCRBY', keys.budget, 'halves', 1)
  redis.call('HDEL', keys.budget, 'has_warned')
else
  redis.call('HSET', keys.budget, 'verdict', args.verdict == 'deny' and 'stopped' or 'lifted')
end
close_request(args.request_id, args.verdict == 'deny' and 'denied' or 'used', args.words)
local woken = {}
for _, sid in ipairs(waiting_for_budgets(keys.active, args.budget_id)) do
  local key = 'rc:state:{' .. sid .. '}'
  wake(sid, key)
  woken[#woken + 1] = row{session_key = redis.call('HGET', key, 'key'), queue = queue_if_scheduled(key)}
end
return result{status = 'done', state = redis.call('HGET', keys.request, 'state'), answer = args.answer, woken = woken}
