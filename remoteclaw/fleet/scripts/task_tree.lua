-- Return a session's tree of tasks and branches: the unfinished ones, and those that have ended recently.
-- keys: state, children
-- args: sid, max_tasks, recent_ms
-- result: now_ms, left_out, host, is_quiet, tasks
-- row: sid, parent, status, ended_ms, key, label, task_entry, branch_of, host, doing, progress
--   left_out: the number of tasks left out; host, is_quiet: of the session; parent: the id of the session that started the
--   task; status: running|waiting, or the status of its outcome; ended_ms: the time of that status
--   first the unfinished tasks, oldest first, then the others, newest first

-- At most this many sessions are read. Each has up to 50 ended ones below it, and few unfinished ones.
local MAX_SEEN = 500
local FIELDS = {'key', 'label', 'task_entry', 'branch_of', 'host', 'doing', 'progress'}
local now, seen = now_ms(), {}
local function add(children, parent, number)
  for _, sid in ipairs(redis.call('ZREVRANGE', children, 0, -1)) do
    if #seen == MAX_SEEN then return end
    seen[#seen + 1] = {sid = sid, parent = parent, above = number, state = 'rc:state:{' .. sid .. '}'}
  end
end
add(keys.children, args.sid, 0)
local position = 1
while seen[position] do
  add('rc:children:{' .. seen[position].sid .. '}', seen[position].sid, position)
  position = position + 1
end

-- A session with an awaited entry is unfinished, and so is each session above it.
for number = #seen, 1, -1 do
  local task = seen[number]
  local newest = redis.call('XREVRANGE', 'rc:inbound:{' .. task.sid .. '}', '+', '-', 'COUNT', 1)[1]
  if newest and not id_at_most(newest[1], redis.call('HGET', task.state, 'unwanted_entry')) then
    task.is_unfinished = true
  end
  if task.is_unfinished and task.above > 0 then seen[task.above].is_unfinished = true end
end

-- The status of a task; nil if the session is forgotten, was cancelled and is ending, or ended too long ago.
local function status_of(task)
  local status, turn, run, retried, last = unpack(redis.call('HMGET', task.state, 'status', 'turn', 'task_entry',
    'retried_entry', 'last_task_entry'))
  if not run then return nil end
  task.since = tonumber(string.match(run, '^%d+'))
  if task.is_unfinished then return status == 'running' and turn and 'running' or 'waiting' end
  local outcome = redis.call('HMGET', 'rc:outcome:{' .. task.sid .. '}:' .. (last or retried or run), 'status', 'finished')
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
local rows = {}
for number = 1, count do
  local task = tasks[number]
  local fields = {sid = task.sid, parent = task.parent, status = task.status, ended_ms = task.ended}
  for index, value in ipairs(redis.call('HMGET', task.state, unpack(FIELDS))) do fields[FIELDS[index]] = value end
  rows[number] = row(fields)
end
local host, is_quiet = unpack(redis.call('HMGET', keys.state, 'host', 'is_quiet'))
return result{now_ms = now, left_out = #tasks - count, host = host, is_quiet = is_quiet, tasks = rows}
