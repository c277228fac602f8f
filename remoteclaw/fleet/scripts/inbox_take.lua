-- Return the stored reports of an account to its new adapter.
-- keys: reader, inbox
-- args: token
-- row: id, tries, report
--   the oldest first; report: as JSON
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
local ids, rows = redis.call('HKEYS', keys.inbox), {}
table.sort(ids, function(one, other) return tonumber(one) < tonumber(other) end)
for number, id in ipairs(ids) do
  local tries, report = string.match(redis.call('HGET', keys.inbox, id), '^(%d+) (.*)')
  rows[number] = row{id = id, tries = tries, report = report}
end
return rows
