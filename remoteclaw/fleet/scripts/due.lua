-- Find the cron jobs that are due, and say that a scheduler looks.
-- KEYS due times, jobs, scheduler
-- ARGV at most, how long this scheduler counts as there ms, how many to pass over
-- → now ms, then of each: id, when it was due ms, job
local now = now_ms()
redis.call('SET', KEYS[3], 1, 'PX', ARGV[2])
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', ARGV[3], ARGV[1])
local found = {now}
for position = 1, #due, 2 do
  local job = redis.call('HGET', KEYS[2], due[position])
  if job then
    for _, part in ipairs({due[position], due[position + 1], job}) do found[#found + 1] = part end
  else
    redis.call('ZREM', KEYS[1], due[position])
  end
end
return found
