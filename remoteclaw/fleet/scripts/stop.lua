-- Stop everything that a session has accepted so far, whether it runs or waits, and all that it has
-- started. What is stopped that way has no result: nobody waits for it any more.
-- KEYS state, inbound, the call that asks for it (perhaps)
-- ARGV sid, prefix of bells, 1 if its own result isn't wanted either, how long the call is remembered ms
-- → entries concerned; for a call that was answered before, as then
local seen = KEYS[3] and redis.call('GET', KEYS[3])
if seen then return tonumber(seen) end
local function stop(sid, state, inbound, is_unwanted)
  local newest = redis.call('XREVRANGE', inbound, '+', '-', 'COUNT', 1)
  if not newest[1] then return 0 end  -- else a finish that came first has won
  redis.call('HSET', state, 'stop', newest[1][1])
  if is_unwanted then redis.call('HSET', state, 'unwanted', newest[1][1]) end
  redis.call('PUBLISH', ARGV[2] .. '{' .. sid .. '}', 'stop ' .. newest[1][1])
  return redis.call('XLEN', inbound)
end
local count = stop(ARGV[1], KEYS[1], KEYS[2], ARGV[3] == '1')
for _, sid in ipairs(descendants(ARGV[1])) do
  count = count + stop(sid, 'rc:st:{' .. sid .. '}', 'rc:in:{' .. sid .. '}', true)
end
if KEYS[3] then redis.call('SET', KEYS[3], count, 'PX', ARGV[4]) end
return count
