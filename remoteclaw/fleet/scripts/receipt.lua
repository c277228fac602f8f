-- A reply was delivered: remove it and its files, and note the time with every entry that it answers.
-- If a call wrote it, whoever called is told what came of it.
-- KEYS reader, reply stream, answers of the call, outcome …, blob …
-- ARGV token, reply id, number of outcomes, answer (JSON, or nothing: nobody asked), how long it is
--      kept ms

-- Where there is little room, an answer is kept for the call that waits for it, and not for its repetition.
local MINUTE_MS = 60 * 1000
local token = redis.call('GET', KEYS[1])
if token and token ~= ARGV[1] then  -- a claim that only ran out was nobody else's
  return redis.error_reply('FENCED another adapter reads this stream')
end
local now = now_ms()
if redis.call('XDEL', KEYS[2], ARGV[2]) == 0 then
  for position = 4, 3 + ARGV[3] do  -- dropped in the moment in which it was delivered
    if redis.call('HDEL', KEYS[position], 'undelivered') == 1 then
      redis.call('HSETNX', KEYS[position], 'delivered', now)
    end
  end
  return 0
end
for position = 4, #KEYS do
  if position > 3 + ARGV[3] then
    redis.call('UNLINK', KEYS[position])
  elseif redis.call('EXISTS', KEYS[position]) == 1 then
    redis.call('HSETNX', KEYS[position], 'delivered', now)
  end
end
if ARGV[4] ~= '' then
  redis.call('XADD', KEYS[3], '*', 'id', KEYS[2] .. ' ' .. ARGV[2], 'answer', ARGV[4])
  redis.call('PEXPIRE', KEYS[3], is_full_for('tools') and MINUTE_MS or ARGV[5])
end
return 1
