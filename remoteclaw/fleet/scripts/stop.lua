-- Stop everything that the session has accepted so far, whether it runs or waits.
-- KEYS state, inbound; ARGV bell → entries concerned
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
if not newest[1] then return 0 end  -- a finish that came first has won
redis.call('HSET', KEYS[1], 'stop', newest[1][1])
redis.call('PUBLISH', ARGV[1], 'stop ' .. newest[1][1])
return redis.call('XLEN', KEYS[2])
