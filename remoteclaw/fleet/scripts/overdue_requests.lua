-- Let the requests lapse or expire whose time is over.
-- uses: replies, requests
-- keys: requests
-- args: max_count
-- → their number
local due = redis.call('ZRANGEBYSCORE', keys.requests, '-inf', now_ms(), 'LIMIT', 0, args.max_count)
for _, id in ipairs(due) do
  local state, turn = unpack(redis.call('HMGET', 'rc:request:' .. id, 'state', 'turn'))
  if state == 'open' and turn ~= '' then
    lapse(id)
  elseif state == 'open' or state == 'lapsed' then
    close_request(id, 'expired', 'Nobody answered in time.')
  elseif state == 'granted' then
    close_request(id, 'expired')
  else
    redis.call('ZREM', keys.requests, id)
  end
end
return #due
