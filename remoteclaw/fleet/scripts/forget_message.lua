-- Remove a message from a chat's history: its newest version, and the versions before its edits.
-- keys: history
-- args: id
-- → the number of removed entries
local count = 0
for _, entry in ipairs(redis.call('XRANGE', keys.history, '-', '+')) do
  local line = cjson.decode(entry[2][4])
  local is_of = line.replaces == args.id
  for _, id in ipairs(line.ids or {}) do is_of = is_of or id == args.id end
  if is_of then count = count + redis.call('XDEL', keys.history, entry[1]) end
end
return count
