-- Ask a person for what an agent may not do by itself: the record and the message that shows it are one step.
-- What was allowed for the conversation passes, and so does once what was granted late. An earlier attempt at
-- the turn may have asked for the same: its request is adopted, with its message and its answer; that to a question
-- or a plan also if the agent may have heard it.
-- uses: replies, asks
-- keys: state, replies?, here?, ask, asks, asked, rules, grants, file?
-- args: epoch, turn, id, sid, digest, rule, request, is_edit, is_harmless, is_again, hold_ms, keep_ms, most, most_of_all, card?, closing?,
--   told?, here_closing?, unreached?
--   here: the conversation's stream, if the card goes to another chat: it is told so, and that it can't be reached
--   is_edit: whether it is a change of files that may have been allowed with a plan
--   is_again: whether the caller knows that it may have been done before, and the message says so
-- → open|allowed|again|full, id of the request, or who has allowed it as JSON
local fence = fenced_turn(keys.state, args)
if fence then return fence end
local turn, attempt = args.turn, redis.call('HGET', keys.state, 'attempt')
if redis.call('EXISTS', keys.ask) == 1 then return {'open', args.id} end  -- said before
local now = now_ms()
local rule = redis.call('HGET', keys.rules, args.rule) or
  (args.is_edit == '1' and redis.call('HGET', keys.rules, 'edits'))
if rule then
  redis.call('PEXPIRE', keys.rules, args.keep_ms)
  return {'allowed', rule}
end
local granted = redis.call('HGET', keys.grants, args.digest)
if granted then
  local ask = 'rc:ask:' .. granted
  local state, until_ms, used_by, answer = unpack(redis.call('HMGET', ask, 'state', 'until_ms', 'used_by', 'answer'))
  if state == 'granted' and tonumber(until_ms) > now then
    redis.call('HSET', ask, 'used_by', args.id, 'given_turn', turn, 'given', attempt)
    close_ask(granted, 'used')
    return {'allowed', answer}
  end
  if state == 'used' and used_by == args.id then return {'allowed', answer} end
end
local is_again, open, lapsed = '0', 0, {}
for _, id in ipairs(asked_of(args.sid)) do
  local ask = 'rc:ask:' .. id
  local state, digest, of, by, given, given_turn, adopted_by = unpack(redis.call('HMGET', ask, 'state', 'digest',
    'turn', 'attempt', 'given', 'given_turn', 'adopted_by'))
  if state == 'open' then open = open + 1 end
  if state == 'lapsed' then lapsed[#lapsed + 1] = id end
  if digest == args.digest then
    if adopted_by == args.id then return {'open', id} end  -- said before
    local is_known = state == 'answered' or (state == 'given' and args.is_harmless == '1')
    if of == turn and by ~= attempt and (is_known or state == 'open' or state == 'lapsed') then
      redis.call('HSET', ask, 'attempt', attempt, 'adopted_by', args.id, 'waits_ms', now)
      if not is_known then
        redis.call('HSET', ask, 'state', 'open', 'until_ms', now + args.hold_ms)
        redis.call('ZADD', keys.asks, now + args.hold_ms, id)
      end
      return {'open', id}
    end
    if given_turn == turn and given ~= attempt then is_again = '1' end
  end
  local is_pending = state == 'open' or state == 'answered' or state == 'lapsed' or state == 'granted'
  if not is_pending and of ~= turn and given_turn ~= turn then redis.call('ZREM', keys.asked, id) end
end
if is_again ~= args.is_again then return {'again', ''} end
if open >= tonumber(args.most) or redis.call('ZCARD', keys.asks) >= tonumber(args.most_of_all) then return {'full', ''} end
if is_full_for('tools') then return {'full', ''} end
-- What nobody has answered makes room, the oldest first.
for position = #lapsed, math.max(1, args.most - open), -1 do
  close_ask(lapsed[position], 'expired', 'Nobody answered, and the agent has asked for more since.')
end
open_ask(keys, args, turn, attempt, now + args.hold_ms)
return {'open', args.id}
