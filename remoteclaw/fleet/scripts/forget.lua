-- Remove what is recorded of a session, its ended conversations included.
-- KEYS record, archive → 1 if anything was recorded
local names = {KEYS[1], KEYS[2]}
for _, line in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  names[#names + 1] = KEYS[2] .. ':' .. string.match(line, '^%S+')
end
return redis.call('DEL', unpack(names)) > 0 and 1 or 0
