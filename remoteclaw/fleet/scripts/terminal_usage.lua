-- Add what the program of a terminal has used so far, according to its transcripts: never less than before, because the
-- program may have removed one.
-- uses: usage
-- keys: state, usage, usage_day, usage_hour, spent
-- args: epoch, turn, usage?, agent, sid, root, payers?, usage_ms, zone_offsets
-- → 1
local fence = fenced_turn(keys.state, args)
if fence then return fence end
local total, counted = numbers_of(args.usage), numbers_of(string.match(redis.call('HGET', keys.state, 'counted') or '', '^[^\n]*'))
for index, number in ipairs(counted) do total[index] = math.max(number, total[index] or 0) end
add_turn_usage(keys, args, text_of(total))
return 1
