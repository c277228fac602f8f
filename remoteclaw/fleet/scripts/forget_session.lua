-- Remove a session's record, its ended conversations, its notes, and the history of its chat.
-- keys: record, archive, aside_notes, history?
-- → 1 if any of these existed, else 0
local names = {keys.record, keys.archive, keys.aside_notes, keys.history}
for _, line in ipairs(redis.call('LRANGE', keys.archive, 0, -1)) do
  names[#names + 1] = keys.archive .. ':' .. string.match(line, '^%S+')
end
return redis.call('DEL', unpack(names)) > 0 and 1 or 0
