-- A reply was delivered: remove it and its files, and note the time with every entry that it answers.
-- KEYS reader, reply stream, outcome …, blob …; ARGV token, reply id, number of outcomes
local token = redis.call('GET', KEYS[1])
if token and token ~= ARGV[1] then  -- a claim that only ran out was nobody else's
  return redis.error_reply('FENCED another adapter reads this stream')
end
if redis.call('XDEL', KEYS[2], ARGV[2]) == 0 then return 0 end
local now = now_ms()
for position = 3, #KEYS do
  if position > 2 + ARGV[3] then
    redis.call('UNLINK', KEYS[position])
  elseif redis.call('EXISTS', KEYS[position]) == 1 then
    redis.call('HSETNX', KEYS[position], 'delivered', now)
  end
end
return 1
