-- Become, or stay, the one reader of a reply stream, and be known as such. A new reader is spared what
-- nobody has read for too long.
-- KEYS reader, readers, reply stream; ARGV token, lease ms, the account's name, how long it is known ms
-- → 1 if it is ours
local token = redis.call('GET', KEYS[1])
if token and token ~= ARGV[1] then
  -- It lasts for longer only if the clock was set back, and then its owner may be dead.
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if is_unread(ARGV[3]) then
  give_up_unread(KEYS[3], math.huge, math.huge)
end
local now = now_ms()
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[4])
return 1
