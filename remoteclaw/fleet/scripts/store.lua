-- Keep a file's content for a while; 0 if the server is too full for it.
-- KEYS blob; ARGV content, how long ms, the part of the server's memory beyond which it is refused
if memory_used() > tonumber(ARGV[3]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
