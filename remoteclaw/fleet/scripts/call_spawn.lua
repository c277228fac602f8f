-- Start a session for a task. A process that begins the turn again, and asks for the same, gets the one
-- that the process before has started.
-- uses: entries, sessions, calls, copies
-- keys: caller?, call, side_effects?, sent?, inbound, state, active, sessions, children, labels, spawned,
--   parent_state, parent_map, parent_record, session_map, record
-- args: epoch?, turn?, call_ms, note?, note_ms, sid, entry, grace_ms, outcomes, session_key, lane, parent,
--   most, root, most_below, depth, label?, known_ms, digest, asker, knows, branch_of?, branch_depth, mark, keep_ms,
--   names*
--   root: the session at the head of the tree; digest: what is asked for; asker: by which agent process
--   knows: conversation, if it begins as a copy of its parent's; branch_of: then, whose launch it has
-- → as in the prelude: session key, entry id, queue if a hint is due, else nothing, what it begins with
--   full: how many the parent has unfinished; too many: how many there are below the root; labelled: another
--   session has the label
local over = begin_call(keys, args, 1)
if over then return over end
local before = split(redis.call('HGET', keys.spawned, args.digest) or '')
local number = 1 + (tonumber(redis.call('HGET', keys.spawned, args.digest .. args.asker)) or 0)
local function count()
  if not args.epoch then return end
  redis.call('HSET', keys.spawned, args.digest .. args.asker, number)
  redis.call('PEXPIRE', keys.spawned, args.call_ms)
end
local made_before = args.epoch and before[number]
if made_before then
  local sid, id = string.match(made_before, '^(%x+) %S+ (%S+)')
  -- One that was cancelled has no result: it is started again.
  if not id_at_most(id, redis.call('HGET', 'rc:st:{' .. sid .. '}', 'unwanted_entry')) then
    local result = string.gsub(string.match(made_before, ' (.*)'), ' ', '\n')
    count()
    redis.call('SET', keys.call, result, 'PX', args.call_ms)
    return {'again', result}
  end
end
local idle, busy = idle_and_busy(keys.children)
if busy >= tonumber(args.most) then return {'full', tostring(busy)} end
local below = unfinished_below(args.root)
if below >= tonumber(args.most_below) then return {'too many', tostring(below)} end
if args.label and name_it(keys.labels, args.label, args.sid, keys.state) then return {'labelled', ''} end
count()
redis.call('HSET', keys.state, 'parent', args.parent, 'depth', args.depth)
local knows = 'nothing'
if args.knows == 'conversation' then
  local copied, has_record = copy_conversation(
    {state = keys.parent_state, session_map = keys.parent_map, record = keys.parent_record}, keys, args)
  knows = copied > 0 and 'conversation' or has_record and 'notes' or 'nothing'
  if copied > 0 then redis.call('HSET', keys.state, 'has_remembered', 1) end
end
if args.branch_of then
  redis.call('HSET', keys.state, 'branch_of', args.branch_of, 'branch_depth', args.branch_depth)
  local model = redis.call('HGET', keys.parent_state, 'model')
  if model then redis.call('HSET', keys.state, 'model', model) end
end
-- What an agent has a copy of itself do is done where it works.
local function agent_of(session_key) return string.match(session_key, '^[^/]+') end
if keys.caller and agent_of(args.session_key) == agent_of(args.parent) then
  local project = redis.call('HGET', keys.caller, 'turn_project')
  if project then redis.call('HSET', keys.state, 'project', project) end
end
local id, queue = accept(keys, args)
redis.call('HSET', keys.state, 'task_entry', id)
add_child(keys.children, args.sid, idle, args.known_ms)
before[made_before and number or #before + 1] =
  args.sid .. ' ' .. args.session_key .. ' ' .. id .. '  ' .. knows
if args.epoch then redis.call('HSET', keys.spawned, args.digest, table.concat(before, ',')) end
return end_call(keys, args, args.session_key, id, queue, knows)
