-- Find the runs of cron jobs that have ended and are not settled yet.
-- keys: open
-- → for each run that has ended, or whose outcome has expired: name, run
local runs, found = redis.call('HGETALL', keys.open), {}
for position = 1, #runs, 2 do
  local outcome = string.match(runs[position + 1], '^(%S+) ')
  local status = outcome and redis.call('HGET', outcome, 'status')
  if status ~= 'accepted' and status ~= 'running' then
    found[#found + 1] = runs[position]
    found[#found + 1] = runs[position + 1]
  end
end
return found
