-- Name the one agent process that may call tools for a session, and which.
-- KEYS state; ARGV epoch, grant (JSON)
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
redis.call('HSET', KEYS[1], 'tools', ARGV[2])
return 1
