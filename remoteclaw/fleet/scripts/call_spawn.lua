-- Start a session for a task. If an attempt at the turn is repeated, the same request returns the session that the
-- earlier attempt has started.
-- uses: entries, sessions, calls, copies
-- keys: caller_state?, call, caller_side_effects?, sent?, inbound, state, active, sessions, parent_children, labels,
--   caller_spawned, parent_state, parent_session_map, parent_record, session_map, record, outcome
-- args: epoch?, turn?, call_ms, effect?, effect_ms, sid, entry, grace_ms, session_key, lane, parent, max_children, root,
--   max_below, limits, label?, known_ms, digest, asker, knows, branch_of?, branch_limits?, mark, keep_ms, names*
-- result: status, values
--   root: the session at the head of the tree; digest: of the request; asker: the agent process that makes it
--   knows: `conversation` to begin with a copy of the parent's; branch_of: the session whose launch a branch has
--   values: session_key, entry_id, queue for the hint that is due, if any, begins_with: conversation|notes|nothing
--   full: `number` is that of the parent's unfinished tasks; too many: `number` is that of unfinished sessions below the
--   root; labelled: another session has the label
local over = begin_call(keys, args, 1)
if over then return over end
-- The sessions that this turn has started for the same request, and which of them this process asks for.
local before = split(redis.call('HGET', keys.caller_spawned, args.digest) or '')
local number = 1 + (tonumber(redis.call('HGET', keys.caller_spawned, args.digest .. args.asker)) or 0)
local function count()
  if not args.epoch then return end
  redis.call('HSET', keys.caller_spawned, args.digest .. args.asker, number)
  redis.call('PEXPIRE', keys.caller_spawned, args.call_ms)
end
local made_before = args.epoch and before[number]
if made_before then
  local sid, session_key, id, begins_with = string.match(made_before, '^(%x+) (%S+) (%S+) (%S+)')
  -- A session that was cancelled has no result, so another one is started in its place.
  if not id_at_most(id, redis.call('HGET', 'rc:state:{' .. sid .. '}', 'unwanted_entry')) then
    local json = cjson.encode{session_key = session_key, entry_id = id, begins_with = begins_with}
    count()
    redis.call('SET', keys.call, json, 'PX', args.call_ms)
    return result{status = 'again', values = json}
  end
end
local idle, busy = idle_and_busy(keys.parent_children)
if busy >= tonumber(args.max_children) then return result{status = 'full', values = cjson.encode{number = busy}} end
local below = unfinished_below(args.root)
if below >= tonumber(args.max_below) then return result{status = 'too many', values = cjson.encode{number = below}} end
if args.label and set_label(keys.labels, args.label, args.sid, keys.state) then return result{status = 'labelled'} end
count()
redis.call('HSET', keys.state, 'parent', args.parent, 'limits', args.limits)
local begins_with = 'nothing'
if args.knows == 'conversation' then
  local copied, has_record = copy_conversation(
    {state = keys.parent_state, session_map = keys.parent_session_map, record = keys.parent_record}, keys, args)
  begins_with = copied > 0 and 'conversation' or has_record and 'notes' or 'nothing'
  if copied > 0 then redis.call('HSET', keys.state, 'has_remembered', 1) end
end
if args.branch_of then
  redis.call('HSET', keys.state, 'branch_of', args.branch_of, 'branch_limits', args.branch_limits)
  local model = redis.call('HGET', keys.parent_state, 'model')
  if model then redis.call('HSET', keys.state, 'model', model) end
end
-- A task for the same agent works in the project of the turn that starts it.
local function agent_of(session_key) return string.match(session_key, '^[^/]+') end
if keys.caller_state and agent_of(args.session_key) == agent_of(args.parent) then
  local project = redis.call('HGET', keys.caller_state, 'turn_project')
  if project then redis.call('HSET', keys.state, 'project', project) end
end
local id, queue = accept(keys, args)
redis.call('HSET', keys.state, 'task_entry', id)
add_child(keys.parent_children, args.sid, idle, args.known_ms)
before[made_before and number or #before + 1] =
  args.sid .. ' ' .. args.session_key .. ' ' .. id .. ' ' .. begins_with
if args.epoch then redis.call('HSET', keys.caller_spawned, args.digest, table.concat(before, ',')) end
return end_call(keys, args, {session_key = args.session_key, entry_id = id, queue = queue, begins_with = begins_with})
