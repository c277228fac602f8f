-- Let the requests lapse or expire whose time is over.
-- uses: replies, asks
-- keys: asks
-- args: max_count
-- → their number
local due = redis.call('ZRANGEBYSCORE', keys.asks, '-inf', now_ms(), 'LIMIT', 0, args.max_count)
for _, id in ipairs(due) do
  local state, turn = unpack(redis.call('HMGET', 'rc:ask:' .. id, 'state', 'turn'))
  if state == 'open' and turn ~= '' then
    lapse(id)
  elseif state == 'open' or state == 'lapsed' then
    close_ask(id, 'expired', 'Nobody answered in time.')
  elseif state == 'granted' then
    close_ask(id, 'expired')
  else
    redis.call('ZREM', keys.asks, id)
  end
end
return #due
