-- Put a reply that was given up back on its reply stream; 0 if the dead letter is not there.
-- uses: replies
-- keys: dead_letters, replies, outcomes*
-- args: letter
local letter = redis.call('XRANGE', keys.dead_letters, args.letter, args.letter)[1]
if not letter then return 0 end
redis.call('XDEL', keys.dead_letters, args.letter)
for position = 1, #letter[2], 2 do
  if letter[2][position] == 'reply' then put_reply(keys.replies, letter[2][position + 1]) end
end
for _, outcome in ipairs(keys.outcomes) do redis.call('HDEL', outcome, 'undelivered') end
return 1
