-- Have the turn wait no longer for what it has asked people; they can still answer.
-- Where other sessions wait for a worker, of the turns that could let one go only one does.
-- uses: replies, asks
-- keys: state, letting_go
-- args: epoch, turn, sid, is_needed, pause_ms
-- → 1 if the turn is to end, 0 if another one lets its worker go
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'turn') ~= args.turn then return 0 end
if args.is_needed == '1' and not redis.call('SET', keys.letting_go, args.sid, 'NX', 'PX', args.pause_ms) and
  redis.call('GET', keys.letting_go) ~= args.sid then return 0 end
for _, id in ipairs(asked_of(args.sid)) do
  local state, turn = unpack(redis.call('HMGET', 'rc:ask:' .. id, 'state', 'turn'))
  if turn == args.turn and state == 'open' then lapse(id) end
end
return 1
