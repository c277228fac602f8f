-- Find runs of cron jobs that have ended, and put off the next look at all that are looked at.
-- keys: open, looks
-- args: most, shortest_ms, longest_ms, inbound
-- → now ms, then of each that has ended, or whose outcome or entry is not there any more: name, run
local now, most, longest = now_ms(), tonumber(args.most), tonumber(args.longest_ms)
local names = redis.call('ZRANGEBYSCORE', keys.looks, '-inf', now, 'LIMIT', 0, most)
if #names < most then
  -- Nothing waits so long, unless the clock was set back meanwhile.
  local late = redis.call('ZRANGEBYSCORE', keys.looks, now + longest + 1, '+inf', 'LIMIT', 0, most - #names)
  for _, name in ipairs(late) do names[#names + 1] = name end
end
local found = {now}
for _, name in ipairs(names) do
  local run = redis.call('HGET', keys.open, name)
  if not run then
    redis.call('ZREM', keys.looks, name)
  else
    local outcome, tag, id, begun = string.match(run, '^(%S+({%x+}):((%d+)-%d+)) ')
    local status = outcome and redis.call('HGET', outcome, 'status')
    local wait = tonumber(args.shortest_ms)
    local is_waiting = status == 'accepted' or status == 'running'
    if is_waiting and redis.call('XRANGE', args.inbound .. tag, id, id)[1] then
      wait = math.max(wait, math.min((now - begun) / 4, longest))
    else
      found[#found + 1] = name
      found[#found + 1] = run
    end
    redis.call('ZADD', keys.looks, math.floor(now + wait), name)
  end
end
return found
