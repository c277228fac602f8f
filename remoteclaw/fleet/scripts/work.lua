-- Tell what works for a session: what it has started, and what that has, as far as it has not ended long ago.
-- keys: state, children
-- args: sid, most, recent_ms
-- → the time, how many are left out, the session's host, something if it is quiet, and each as: its id, the id of the session that started
--   it, running|waiting or the status of its outcome, when that came, and the fields below; first those that have
--   not ended, the oldest first, then the others, the newest first

-- How many are looked at; each session has 50 that have ended, and few that have not.
local MAX_SEEN = 500
local FIELDS = {'key', 'label', 'task_entry', 'branch_of', 'host', 'doing', 'progress'}
local now, seen = now_ms(), {}
local function add(children, parent, number)
  for _, sid in ipairs(redis.call('ZREVRANGE', children, 0, -1)) do
    if #seen == MAX_SEEN then return end
    seen[#seen + 1] = {sid = sid, parent = parent, above = number, state = 'rc:st:{' .. sid .. '}'}
  end
end
add(keys.children, args.sid, 0)
local position = 1
while seen[position] do
  add('rc:kids:{' .. seen[position].sid .. '}', seen[position].sid, position)
  position = position + 1
end

-- What has entries that are wanted is not over, nor is what waits for it.
for number = #seen, 1, -1 do
  local one = seen[number]
  local newest = redis.call('XREVRANGE', 'rc:in:{' .. one.sid .. '}', '+', '-', 'COUNT', 1)[1]
  if newest and not id_at_most(newest[1], redis.call('HGET', one.state, 'unwanted_entry')) then
    one.is_unfinished = true
  end
  if one.is_unfinished and one.above > 0 then seen[one.above].is_unfinished = true end
end

-- How it is now; nothing of what is forgotten, was cancelled and is ending, or ended long ago.
local function status_of(one)
  local status, turn, task, retried, told = unpack(redis.call('HMGET', one.state, 'status', 'turn', 'task_entry',
    'retried_entry', 'told_entry'))
  if not task then return nil end
  one.since = tonumber(string.match(task, '^%d+'))
  if one.is_unfinished then return status == 'running' and turn and 'running' or 'waiting' end
  local outcome = redis.call('HMGET', 'rc:oc:{' .. one.sid .. '}:' .. (told or retried or task), 'status', 'finished')
  one.ended = tonumber(outcome[2] or 0)
  if one.ended == 0 or now - one.ended >= tonumber(args.recent_ms) then return nil end
  return outcome[1] == 'steered' and 'done' or outcome[1]
end
local found = {}
for _, one in ipairs(seen) do
  one.status = status_of(one)
  if one.status then found[#found + 1] = one end
end
table.sort(found, function(one, other)
  if one.is_unfinished ~= other.is_unfinished then return one.is_unfinished == true end
  if not one.is_unfinished and one.ended ~= other.ended then return one.ended > other.ended end
  if one.since ~= other.since then return one.since < other.since end
  return one.sid < other.sid
end)

local most = math.min(#found, tonumber(args.most))
local own = redis.call('HMGET', keys.state, 'host', 'is_quiet')
local told = {now, #found - most, own[1] or '', own[2] or ''}
for number = 1, most do
  local one = found[number]
  local fields = redis.call('HMGET', one.state, unpack(FIELDS))
  for index = 1, #FIELDS do fields[index] = fields[index] or '' end
  told[#told + 1] = {one.sid, one.parent, one.status, one.ended or 0, unpack(fields)}
end
return told
