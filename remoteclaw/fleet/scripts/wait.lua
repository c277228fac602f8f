-- Let a turn wait for another session's, if a worker stays that can run it.
-- KEYS turns that wait, by when they stop to at the latest ms; ARGV name, how long ms, workers
-- → 1 if it may wait
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local is_known = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not is_known and redis.call('ZCARD', KEYS[1]) + 1 >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
return 1
