-- Return a session's tree of tasks and branches: the unfinished ones, and those that have ended recently.
-- keys: state, children
-- args: sid, max_tasks, recent_ms
-- → the time, the number of tasks left out, the session's host, something if the session is quiet, and for each task: its
--   id, the id of the session that started it, running|waiting or the status of its outcome, the time of that status, and
--   the fields below; first the unfinished tasks, oldest first, then the others, newest first

-- At most this many sessions are read. Each has up to 50 ended ones below it, and few unfinished ones.
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

-- A session with an awaited entry is unfinished, and so is each session above it.
for number = #seen, 1, -1 do
  local task = seen[number]
  local newest = redis.call('XREVRANGE', 'rc:in:{' .. task.sid .. '}', '+', '-', 'COUNT', 1)[1]
  if newest and not id_at_most(newest[1], redis.call('HGET', task.state, 'unwanted_entry')) then
    task.is_unfinished = true
  end
  if task.is_unfinished and task.above > 0 then seen[task.above].is_unfinished = true end
end

-- The status of a task; nil if the session is forgotten, was cancelled and is ending, or ended too long ago.
local function status_of(task)
  local status, turn, run, retried, last = unpack(redis.call('HMGET', task.state, 'status', 'turn', 'task_entry',
    'retried_entry', 'told_entry'))
  if not run then return nil end
  task.since = tonumber(string.match(run, '^%d+'))
  if task.is_unfinished then return status == 'running' and turn and 'running' or 'waiting' end
  local outcome = redis.call('HMGET', 'rc:oc:{' .. task.sid .. '}:' .. (last or retried or run), 'status', 'finished')
  task.ended = tonumber(outcome[2] or 0)
  if task.ended == 0 or now - task.ended >= tonumber(args.recent_ms) then return nil end
  return outcome[1] == 'steered' and 'done' or outcome[1]
end
local tasks = {}
for _, task in ipairs(seen) do
  task.status = status_of(task)
  if task.status then tasks[#tasks + 1] = task end
end
table.sort(tasks, function(one, other)
  if one.is_unfinished ~= other.is_unfinished then return one.is_unfinished == true end
  if not one.is_unfinished and one.ended ~= other.ended then return one.ended > other.ended end
  if one.since ~= other.since then return one.since < other.since end
  return one.sid < other.sid
end)

local count = math.min(#tasks, tonumber(args.max_tasks))
local own = redis.call('HMGET', keys.state, 'host', 'is_quiet')
local reply = {now, #tasks - count, own[1] or '', own[2] or ''}
for number = 1, count do
  local task = tasks[number]
  local fields = redis.call('HMGET', task.state, unpack(FIELDS))
  for index = 1, #FIELDS do fields[index] = fields[index] or '' end
  reply[#reply + 1] = {task.sid, task.parent, task.status, task.ended or 0, unpack(fields)}
end
return reply
