-- Stop everything that the session has accepted so far, whether it runs or waits.
-- KEYS state, inbound, the call that asks for it (perhaps); ARGV bell, how long that is remembered ms
-- → entries concerned; for a call that was answered before, what it was told then
local seen = KEYS[3] and redis.call('GET', KEYS[3])
if seen then return tonumber(seen) end
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
local count = 0
if newest[1] then  -- else a finish that came first has won
  redis.call('HSET', KEYS[1], 'stop', newest[1][1])
  redis.call('PUBLISH', ARGV[1], 'stop ' .. newest[1][1])
  count = redis.call('XLEN', KEYS[2])
end
if KEYS[3] then redis.call('SET', KEYS[3], count, 'PX', ARGV[2]) end
return count
