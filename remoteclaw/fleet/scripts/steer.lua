-- Take entries into the running turn, before its agent is told of them: if that goes wrong, the next
-- attempt is about them as well.
-- keys: state
-- args: epoch, turn, outcomes, entry_ids*
-- → 1 if they are taken
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local turn, attempt, steered, stop = unpack(redis.call('HMGET', keys.state, 'turn', 'attempt', 'steered',
  'stop_entry'))
if turn ~= args.turn or id_at_most(turn, stop) then return 0 end
local now, taken, is_taken = now_ms(), split(steered or ''), {}
for _, id in ipairs(taken) do is_taken[id] = true end
for _, id in ipairs(args.entry_ids) do
  if not is_taken[id] then
    taken[#taken + 1] = id
    redis.call('HSET', args.outcomes .. id, 'status', 'running', 'turn', turn, 'steered.' .. attempt, now)
  end
end
redis.call('HSET', keys.state, 'steered', table.concat(taken, ','))
return 1
