-- Record the position up to which an account's reports were read, and store those that are still being handled.
-- keys: reader, position, account, inbox
-- args: token, position, accepted, skipped, max_of_sender, max_of_chat, max_reports, max_bytes, reports*
--   accepted, skipped: the numbers of reports that were accepted, and that were skipped; reports: the slow ones, as JSON
-- → for each slow report its id, or nothing if there is no room; full: Redis is full, and nothing was recorded
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
local position, stored = redis.call('GET', keys.position), {}
if position == args.position then  -- a repeated call
  for id in string.gmatch(redis.call('HGET', keys.account, 'stored') or '', '([^,]*),') do stored[#stored + 1] = id end
  return stored
end
if #args.reports > 0 and is_full_for('messages') then return 'full' end
-- The numbers of stored reports by sender and chat.
local of_sender, of_chat, count = {}, {}, 0
local function add(report)
  of_sender[report.sender] = (of_sender[report.sender] or 0) + 1
  of_chat[report.chat] = (of_chat[report.chat] or 0) + 1
  count = count + 1
end
if #args.reports > 0 then
  for _, value in ipairs(redis.call('HVALS', keys.inbox)) do add(cjson.decode(string.match(value, ' (.*)'))) end
end
for number, json in ipairs(args.reports) do
  local report = cjson.decode(json)
  local has_room = count < tonumber(args.max_reports) and (of_chat[report.chat] or 0) < tonumber(args.max_of_chat) and
    (of_sender[report.sender] or 0) < tonumber(args.max_of_sender) and bytes_of(keys.inbox) < tonumber(args.max_bytes)
  stored[number] = ''
  if has_room then
    add(report)
    stored[number] = tostring(redis.call('HINCRBY', keys.account, 'last_report', 1))
    redis.call('HSET', keys.inbox, stored[number], '1 ' .. json)
  end
end
redis.call('SET', keys.position, args.position)
redis.call('HSET', keys.account, 'stored', #stored > 0 and table.concat(stored, ',') .. ',' or '')
redis.call('HINCRBY', keys.account, 'accepted', args.accepted)
redis.call('HINCRBY', keys.account, 'skipped', args.skipped)
return stored
