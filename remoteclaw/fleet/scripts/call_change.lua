-- Record a call that changes RemoteClaw itself, before it does so; or make a request to people for that change.
-- uses: replies, requests, calls
-- keys: caller_state?, call, caller_side_effects?, sent?, request?, requests?, session_requests?, replies?, file?, here?
-- args: epoch?, turn?, call_ms, effect?, effect_ms, result, request_id?, sid?, request?, valid_ms?, keep_ms?, max_open?,
--   max_total?, card?, closing?, shown_elsewhere?, unreached?
-- result: status, values
--   request_id and what follows it: of the request, if people are asked
--   values: result; full: too many requests wait
local over = begin_call(keys, args, 1)
if over then return over end
if args.request_id then
  local open = 0
  for _, id in ipairs(requests_of(args.sid)) do
    if redis.call('HGET', 'rc:request:' .. id, 'state') == 'open' then open = open + 1 end
  end
  local is_full = open >= tonumber(args.max_open) or redis.call('ZCARD', keys.requests) >= tonumber(args.max_total)
  if is_full then return result{status = 'full'} end
  open_request(keys, args, '', '', now_ms() + args.valid_ms)
end
return end_call(keys, args, {result = args.result})
