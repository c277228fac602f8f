-- Drop replies that are on a reply stream; this works on a full server.
-- KEYS reply stream; ARGV reply id …
-- → how many were still there
local count = 0
for _, id in ipairs(ARGV) do
  local reply = redis.call('XRANGE', KEYS[1], id, id)[1]
  if reply then
    give_up(KEYS[1], id, reply[2][2], 'an operator has dropped it')
    count = count + 1
  end
end
return count
