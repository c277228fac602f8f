-- Ask owners about a budget whose limit is reached. They are asked once until they answer, however many sessions reach it.
-- uses: replies, requests
-- keys: request, requests, session_requests, replies?, here?, file?, budget
-- args: request_id, sid, halves, until_ms, budget_ms, request, keep_ms, max_open, max_total, card?, closing?,
--   shown_elsewhere?, unreached?
-- result: status, request_id
--   halves: those of the limit that is reached; budget_ms: how long the budget's hash is kept
--   status: asked|open|decided|full; request_id: of the request that waits for an answer, if any
local before, halves, verdict = unpack(redis.call('HMGET', keys.budget, 'request', 'halves', 'verdict'))
local state, shown_by, sid = unpack(redis.call('HMGET', 'rc:request:' .. (before or ''), 'state', 'replies', 'sid'))
local is_open = before and state == 'open'
if is_open and (shown_by or not args.card) then return result{status = 'open', request_id = before} end
if verdict or (halves or '0') ~= args.halves then return result{status = 'decided'} end
if is_open then  -- no chat has shown it: this one does, and the request belongs to its conversation
  redis.call('ZREM', 'rc:session-requests:{' .. sid .. '}', before)
elseif redis.call('ZCARD', keys.requests) >= tonumber(args.max_total) then
  return result{status = 'full'}
end
open_request(keys, args, '', '', tonumber(args.until_ms))
redis.call('HSET', keys.budget, 'request', args.request_id)
redis.call('PEXPIRE', keys.budget, args.budget_ms)
return result{status = 'asked', request_id = args.request_id}
