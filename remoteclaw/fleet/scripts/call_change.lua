-- Remember that a call changes RemoteClaw itself, before it does; or keep the change until a person approves.
-- uses: calls
-- keys: caller?, call, side_effects?, sent?, approvals
-- args: epoch?, turn?, call_ms, note?, note_ms, made, approval_id?, approval?, approval_ms, most_waiting
-- → as in the prelude: `made`; full: so many wait
local answered = answer_call(keys, args)
if answered then return answered end
local refused = count_call(keys, args, 1)
if refused then return refused end
if args.approval_id then
  local known, now = redis.call('HGETALL', keys.approvals), now_ms()
  for position = 1, #known, 2 do
    local is_read, change = pcall(cjson.decode, known[position + 1])
    if not is_read or type(change) ~= 'table' or (tonumber(change.expires_ms) or 0) <= now then
      redis.call('HDEL', keys.approvals, known[position])
    end
  end
  if redis.call('HLEN', keys.approvals) >= tonumber(args.most_waiting) then return {'full', ''} end
  redis.call('HSET', keys.approvals, args.approval_id, args.approval)
  redis.call('PEXPIRE', keys.approvals, args.approval_ms)
end
return end_call(keys, args, args.made)
