-- Remove reports that were handled from the inbox of their account, and count them.
-- keys: reader, inbox, account, late_messages
-- args: token, accepted*, skipped*, late*
--   the ids of the reports by what became of them; late: pairs of an id of a message that was too old, and
--   'at_ms place'
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
-- A repeated call finds no report, and counts none.
for name, ids in pairs({accepted = args.accepted, skipped = args.skipped}) do
  local count = 0
  for _, id in ipairs(ids) do count = count + redis.call('HDEL', keys.inbox, id) end
  if count > 0 then redis.call('HINCRBY', keys.account, name, count) end
end
for index = 1, #args.late, 2 do
  if redis.call('HDEL', keys.inbox, args.late[index]) == 1 then
    redis.call('HINCRBY', keys.account, 'skipped', 1)
    local at, place = string.match(args.late[index + 1], '^(%d+) (.*)')
    local known = redis.call('HGET', keys.late_messages, place) or '0 ' .. at .. ' ' .. at
    local count, first, last = string.match(known, '(%d+) (%d+) (%d+)')
    first, last = math.min(tonumber(first), tonumber(at)), math.max(tonumber(last), tonumber(at))
    redis.call('HSET', keys.late_messages, place, string.format('%d %d %d', tonumber(count) + 1, first, last))
  end
end
