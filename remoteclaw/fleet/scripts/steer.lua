-- Join entries to the running turn, before its agent receives them. If the attempt fails, the next one includes them.
-- uses: edits
-- keys: state, inbound, outcome
-- args: epoch, turn, entry_ids*
-- → the entries; nothing if the turn is over or stopped
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local turn, attempt, steered, stop = unpack(redis.call('HMGET', keys.state, 'turn', 'attempt', 'steered',
  'stop_entry'))
if turn ~= args.turn or id_at_most(turn, stop) then return {} end
local now, joined, has_joined, entries = now_ms(), split(steered or ''), {}, {}
for _, id in ipairs(joined) do has_joined[id] = true end
for _, id in ipairs(args.entry_ids) do
  local entry = entries_of(keys.inbound, id, id)[1]  -- its sender may just have withdrawn it
  entries[#entries + 1] = entry
  if entry and not has_joined[id] then
    joined[#joined + 1] = id
    redis.call('HSET', keys.outcome .. id, 'status', 'running', 'turn', turn, 'steered.' .. attempt, now)
  end
end
redis.call('HSET', keys.state, 'steered', table.concat(joined, ','))
return entries
