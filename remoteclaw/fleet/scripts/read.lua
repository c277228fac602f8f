-- Become, or stay, the one reader of a reply stream.
-- KEYS reader; ARGV token, lease ms → 1 if it is ours
local token = redis.call('GET', KEYS[1])
if token and token ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
