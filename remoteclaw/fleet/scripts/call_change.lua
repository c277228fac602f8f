-- Remember that a call changes RemoteClaw itself, before it does; or keep the change until a person approves.
-- uses: calls
-- keys: caller?, call, side_effects?, sent?, changes, approvals
-- args: epoch?, turn?, call_ms, note?, note_ms, most, within_ms, made, approval_id?, approval?, approval_ms,
--   most_waiting
-- → as in the prelude: `made`; limited: after how long ms it may be asked for again; taken: the id;
--   full: so many wait
local answered = answer_call(keys, args)
if answered then return answered end
local refused = count_call(keys, args, 1)
if refused then return refused end
local now, most, within = now_ms(), tonumber(args.most), tonumber(args.within_ms)
local first = redis.call('LINDEX', keys.changes, most - 1)
local since = first and now - tonumber(first) or within
if since >= 0 and since < within then return {'limited', string.format('%d', within - since)} end
if args.approval_id then
  -- What a person was shown under an id is what they approve with it.
  if redis.call('HEXISTS', keys.approvals, args.approval_id) == 1 then return {'taken', ''} end
  local known, waiting = redis.call('HGETALL', keys.approvals), 0
  for position = 1, #known, 2 do
    local is_read, change = pcall(cjson.decode, known[position + 1])
    if not is_read or type(change) ~= 'table' or (tonumber(change.expires_ms) or 0) <= now then
      redis.call('HDEL', keys.approvals, known[position])
    elseif change.status == 'pending' then
      waiting = waiting + 1
    end
  end
  if waiting >= tonumber(args.most_waiting) then return {'full', ''} end
  redis.call('HSET', keys.approvals, args.approval_id, args.approval)
  redis.call('PEXPIRE', keys.approvals, args.approval_ms)
end
redis.call('LPUSH', keys.changes, now)
redis.call('LTRIM', keys.changes, 0, most - 1)
redis.call('PEXPIRE', keys.changes, within)
return end_call(keys, args, args.made)
