-- Find runs of cron jobs that have ended, and put off the next look at all that are looked at.
-- KEYS open runs, their looks
-- ARGV how many are looked at at most, shortest wait ms, longest wait ms, inbound prefix
-- → now ms, then of each that has ended, or whose outcome or entry is not there any more: name, run
local now, most, longest = now_ms(), tonumber(ARGV[1]), tonumber(ARGV[3])
local names = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, most)
if #names < most then
  -- Nothing waits so long, unless the clock was set back meanwhile.
  local late = redis.call('ZRANGEBYSCORE', KEYS[2], now + longest + 1, '+inf', 'LIMIT', 0, most - #names)
  for _, name in ipairs(late) do names[#names + 1] = name end
end
local found = {now}
for _, name in ipairs(names) do
  local run = redis.call('HGET', KEYS[1], name)
  if not run then
    redis.call('ZREM', KEYS[2], name)
  else
    local outcome, tag, id, begun = string.match(run, '^(%S+({%x+}):((%d+)-%d+)) ')
    local status = outcome and redis.call('HGET', outcome, 'status')
    local wait = tonumber(ARGV[2])
    local is_waiting = status == 'accepted' or status == 'running'
    if is_waiting and redis.call('XRANGE', ARGV[4] .. tag, id, id)[1] then
      wait = math.max(wait, math.min((now - begun) / 4, longest))
    else
      found[#found + 1] = name
      found[#found + 1] = run
    end
    redis.call('ZADD', KEYS[2], math.floor(now + wait), name)
  end
end
return found
