-- Return the stored reports of an account to its new adapter.
-- keys: reader, inbox
-- args: token
-- → for each report, oldest first: its id, the number of tries, the report as JSON
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
local ids, rows = redis.call('HKEYS', keys.inbox), {}
table.sort(ids, function(one, other) return tonumber(one) < tonumber(other) end)
for number, id in ipairs(ids) do
  local tries, report = string.match(redis.call('HGET', keys.inbox, id), '^(%d+) (.*)')
  rows[number] = {id, tries, report}
end
return rows
