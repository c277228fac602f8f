-- Have the turn wait no longer for what it has asked people; they can still answer.
-- Where other sessions wait for a worker, of the turns that could let one go only one does, and none that has
-- an answer which the agent has not heard.
-- uses: replies, asks
-- keys: state, letting_go
-- args: epoch, turn, sid, is_needed, pause_ms
-- → 1 if the turn is to end, 0 if it goes on
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'turn') ~= args.turn then return 0 end
local open = {}
for _, id in ipairs(asked_of(args.sid)) do
  local state, turn = unpack(redis.call('HMGET', 'rc:ask:' .. id, 'state', 'turn'))
  if turn == args.turn and state == 'open' then open[#open + 1] = id end
  if turn == args.turn and state == 'answered' and args.is_needed == '1' then return 0 end
end
if args.is_needed == '1' and not redis.call('SET', keys.letting_go, args.sid, 'NX', 'PX', args.pause_ms) and
  redis.call('GET', keys.letting_go) ~= args.sid then return 0 end
for _, id in ipairs(open) do lapse(id) end
return 1
