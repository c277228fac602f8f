-- Store reports that a platform has delivered, and the cursors after them.
-- keys: reader, cursors, inbox, account
-- args: token, run_id?, batch, is_urgent, moves*, reports*
--   run_id: the server's when the earlier cursors were read; batch: a name of the call; is_urgent: people stop or answer turns with them; moves: pairs of a source and its new cursor, empty if the source is gone; reports: as JSON
-- → the number of the last report; full: Redis is full, and nothing was stored
local fence = fenced_reader(keys.reader, args.token) or fenced_run(args.run_id)
if fence then return fence end
local last, batch = unpack(redis.call('HMGET', keys.account, 'last_report', 'last_batch'))
if batch == args.batch then return tonumber(last) end  -- a repeated call
local has_room = args.is_urgent == '1' and memory_used() < 0.9 or not is_full_for('messages')
if #args.reports > 0 and not has_room then return 'full' end
for index, report in ipairs(args.reports) do
  redis.call('HSET', keys.inbox, string.format('%d', (last or 0) + index), '1 ' .. report)
end
for index = 1, #args.moves, 2 do
  local source, cursor = args.moves[index], args.moves[index + 1]
  if cursor == '' then redis.call('HDEL', keys.cursors, source) else redis.call('HSET', keys.cursors, source, cursor) end
end
last = string.format('%d', (last or 0) + #args.reports)
redis.call('HSET', keys.account, 'last_report', last, 'last_batch', args.batch)
return tonumber(last)
