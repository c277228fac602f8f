-- Find the runs of cron jobs that have ended and are not settled yet.
-- keys: cron_open
-- row: name, run
--   for each run that has ended, or whose outcome has expired
local runs, found = redis.call('HGETALL', keys.cron_open), {}
for position = 1, #runs, 2 do
  local outcome = string.match(runs[position + 1], '^(%S+) ')
  local status = outcome and redis.call('HGET', outcome, 'status')
  if status ~= 'accepted' and status ~= 'running' then
    found[#found + 1] = row{name = runs[position], run = runs[position + 1]}
  end
end
return found
