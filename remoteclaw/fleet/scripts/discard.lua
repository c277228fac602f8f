-- Drop replies from a reply stream; this works on a full server.
-- uses: replies
-- keys: replies
-- args: ids*
-- → the number of dropped replies
local count = 0
for _, id in ipairs(args.ids) do
  local reply = redis.call('XRANGE', keys.replies, id, id)[1]
  if reply then
    abandon_reply(keys.replies, id, reply[2][2], 'an operator has dropped it')
    count = count + 1
  end
end
return count
