-- Put a dead letter's reply back on its reply stream, with the mark of how far it was sent.
-- uses: replies
-- keys: dead_letters, replies, delivery_marks, outcomes*
-- args: letter
-- → 1; 0 if the dead letter doesn't exist
local letter = redis.call('XRANGE', keys.dead_letters, args.letter, args.letter)[1]
if not letter then return 0 end
redis.call('XDEL', keys.dead_letters, args.letter)
announce_sessions()
local fields = {}
for position = 1, #letter[2], 2 do fields[letter[2][position]] = letter[2][position + 1] end
local id = put_reply(keys.replies, fields.reply)
if fields.mark and fields.mark ~= '' then redis.call('HSET', keys.delivery_marks, id, fields.mark) end
for _, outcome in ipairs(keys.outcomes) do redis.call('HDEL', outcome, 'undelivered') end
return 1
