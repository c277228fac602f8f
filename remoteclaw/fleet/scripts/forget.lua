-- Remove what is recorded of a session, its ended conversations included, and what passed through its chat.
-- keys: record, archive, beside, history?
-- → 1 if anything was recorded
local names = {keys.record, keys.archive, keys.beside, keys.history}
for _, line in ipairs(redis.call('LRANGE', keys.archive, 0, -1)) do
  names[#names + 1] = keys.archive .. ':' .. string.match(line, '^%S+')
end
return redis.call('DEL', unpack(names)) > 0 and 1 or 0
