-- End the turn's wait for the answers to its open requests; people can still answer them.
-- With `is_needed`, other sessions wait for a worker. Then only one of the turns that could release theirs does so, and
-- none with an answer that its agent has not received.
-- uses: replies, requests
-- keys: state, worker_release
-- args: epoch, turn, sid, is_needed, pause_ms
-- → 1 if the turn is to end, 0 if it goes on
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'turn') ~= args.turn then return 0 end
local open = {}
for _, id in ipairs(requests_of(args.sid)) do
  local state, turn = unpack(redis.call('HMGET', 'rc:request:' .. id, 'state', 'turn'))
  if turn == args.turn and state == 'open' then open[#open + 1] = id end
  if turn == args.turn and state == 'answered' and args.is_needed == '1' then return 0 end
end
if args.is_needed == '1' and not redis.call('SET', keys.worker_release, args.sid, 'NX', 'PX', args.pause_ms) and
  redis.call('GET', keys.worker_release) ~= args.sid then return 0 end
for _, id in ipairs(open) do lapse(id) end
return 1
