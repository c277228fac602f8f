-- Ask people for something that an agent may not do by itself: make the request and the message that shows it, in one
-- step. A call that was allowed for the conversation passes without a request; a call that was granted after its turn
-- passes once. If an earlier attempt at the turn has made the same request, this attempt adopts it with its message and
-- its answer. The given answer to a question or plan is adopted as well, because repeating that does no harm.
-- uses: replies, requests
-- keys: state, replies?, here?, request, requests, session_requests, rules, grants, file?
-- args: epoch, turn, request_id, sid, digest, rule, request, is_edit, is_harmless, is_again, hold_ms, keep_ms, max_open,
--   max_total, card?, closing?, shown_elsewhere?, unreached?, holders*
-- result: status, detail
--   holders: the people of the turn, each with the names under which permissions for that person are kept, a line each
--   here: the conversation's reply stream, if another chat shows the request; shown_elsewhere: the notice of that for
--   the conversation, sent once that chat shows it; unreached: the notice if it can't
--   is_edit: whether the call changes files, which may have been allowed with a plan
--   is_again: whether the message says that the call may have been performed before
--   status: open|allowed|again|full; detail: the id of the request, or the person who has allowed it as JSON
--   again: the call may have been performed before, and `is_again` doesn't say so, or the other way round
local fence = fenced_turn(keys.state, args)
if fence then return fence end
local turn, attempt = args.turn, redis.call('HGET', keys.state, 'attempt')
if redis.call('EXISTS', keys.request) == 1 then  -- a repeated call
  return result{status = 'open', detail = args.request_id}
end
local now = now_ms()
-- The permission of the conversation that allows the call for one of the turn's people, or nothing.
local function permission_for(holder)
  for name in string.gmatch(holder, '[^\n]+') do
    local found = redis.call('HGET', keys.rules, rule_of(args.rule, name)) or
      (args.is_edit == '1' and redis.call('HGET', keys.rules, rule_of('edits', name)))
    if found then return found end
  end
end
local rule
for _, holder in ipairs(args.holders) do
  rule = permission_for(holder)
  if not rule then break end
end
if rule then
  redis.call('PEXPIRE', keys.rules, args.keep_ms)
  return result{status = 'allowed', detail = rule}
end
-- Whether all people of the turn are among those to whom a call was granted.
local function is_for_all(granted_to)
  local names = {}
  for name in string.gmatch(granted_to or '', '[^\n]+') do names[name] = true end
  for _, holder in ipairs(args.holders) do
    local is_for_one = false
    for name in string.gmatch(holder, '[^\n]+') do is_for_one = is_for_one or names[name] end
    if not is_for_one then return false end
  end
  return true
end
local granted = redis.call('HGET', keys.grants, args.digest)
if granted then
  local request = 'rc:request:' .. granted
  local state, until_ms, used_by, answer, granted_to = unpack(redis.call('HMGET', request, 'state', 'until_ms', 'used_by',
    'answer', 'holders'))
  if state == 'granted' and tonumber(until_ms) > now and is_for_all(granted_to) then
    redis.call('HSET', request, 'used_by', args.request_id, 'given_turn', turn, 'given', attempt)
    close_request(granted, 'used')
    return result{status = 'allowed', detail = answer}
  end
  if state == 'used' and used_by == args.request_id then return result{status = 'allowed', detail = answer} end
end
local is_again, open, lapsed = '0', 0, {}
for _, id in ipairs(requests_of(args.sid)) do
  local request = 'rc:request:' .. id
  local state, digest, request_turn, request_attempt, given, given_turn, adopted_by = unpack(redis.call('HMGET', request, 'state',
    'digest', 'turn', 'attempt', 'given', 'given_turn', 'adopted_by'))
  if state == 'open' then open = open + 1 end
  if state == 'lapsed' then lapsed[#lapsed + 1] = id end
  if digest == args.digest then
    if adopted_by == args.request_id then return result{status = 'open', detail = id} end  -- a repeated call
    local has_answer = state == 'answered' or (state == 'given' and args.is_harmless == '1')
    if request_turn == turn and request_attempt ~= attempt and (has_answer or state == 'open' or state == 'lapsed') then
      redis.call('HSET', request, 'attempt', attempt, 'adopted_by', args.request_id, 'waits_ms', now)
      if not has_answer then
        redis.call('HSET', request, 'state', 'open', 'until_ms', now + args.hold_ms)
        redis.call('ZADD', keys.requests, now + args.hold_ms, id)
        announce_request(id)
      end
      return result{status = 'open', detail = id}
    end
    if given_turn == turn and given ~= attempt then is_again = '1' end
  end
  local is_pending = state == 'open' or state == 'answered' or state == 'lapsed' or state == 'granted'
  if not is_pending and request_turn ~= turn and given_turn ~= turn then redis.call('ZREM', keys.session_requests, id) end
end
if is_again ~= args.is_again then return result{status = 'again'} end
if open >= tonumber(args.max_open) or redis.call('ZCARD', keys.requests) >= tonumber(args.max_total) then
  return result{status = 'full'}
end
if is_full_for('tools') then return result{status = 'full'} end
-- The oldest lapsed requests make room for the new one.
for position = #lapsed, math.max(1, args.max_open - open), -1 do
  close_request(lapsed[position], 'expired', 'Nobody answered, and the agent has asked for more since.')
end
open_request(keys, args, turn, attempt, now + args.hold_ms)
return result{status = 'open', detail = args.request_id}
