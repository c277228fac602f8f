-- Move a person's message from a session to a new branch of it, which answers the person. The message is always on
-- exactly one stream. Its outcome in the first session names the branch, and ends with the branch's turn.
-- uses: replies, edits, asides, entries, sessions, copies, usage
-- keys: state, inbound, session_map, record, replies?, branch_state, branch_inbound, branch_session_map, branch_record,
--   active, sessions, children, usage, usage_day, usage_hour, spent, outcome, branch_outcome, blobs*, branch_blobs*
-- args: epoch, entry_id, branch_sid, session_key, entry, grace_ms, parent, limits, branch_of, branch_limits,
--   max_children, sid, max_below, known_ms, mark, keep_ms, acknowledgement?, usage?, agent, root, payers?,
--   usage_ms, zone_offsets, names*
-- result: status, entry_id, queue
--   status: moved; full: too many sessions are unfinished; gone: the message is answered, stopped or part of a turn
--   entry_id: in the branch; queue: for the hint that is due, if any
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local outcome = keys.outcome .. args.entry_id
local moved = redis.call('HGET', outcome, 'moved')
if moved then  -- a repeated call
  return result{status = 'moved', entry_id = string.match(moved, '%d+%-%d+$'),
    queue = queue_if_scheduled(keys.branch_state)}
end
add_aside_usage(keys, args, outcome)
local stop, project, model = unpack(redis.call('HMGET', keys.state, 'stop_entry', 'turn_project', 'model'))
if not is_untouched(keys, args.entry_id) or id_at_most(args.entry_id, stop) then return result{status = 'gone'} end
-- The agent was asked about an earlier version of the message.
if redis.call('HEXISTS', outcome, 'is_edited') == 1 then return result{status = 'gone'} end
local idle, busy = idle_and_busy(keys.children)
if busy >= tonumber(args.max_children) or unfinished_below(args.sid) >= tonumber(args.max_below) or
  is_full_for('tools') then return result{status = 'full'} end
local branch = {state = keys.branch_state, inbound = keys.branch_inbound, session_map = keys.branch_session_map,
  record = keys.branch_record, active = keys.active, sessions = keys.sessions, outcome = keys.branch_outcome}
local copied = copy_conversation(keys, branch, args)
redis.call('HSET', branch.state, 'parent', args.parent, 'limits', args.limits, 'branch_of', args.branch_of,
  'branch_limits', args.branch_limits, 'moved_entry', args.entry_id, 'last_heard_ms', now_ms())
if copied > 0 then redis.call('HSET', branch.state, 'has_remembered', 1) end
if project then redis.call('HSET', branch.state, 'project', project) end
if model then redis.call('HSET', branch.state, 'model', model) end
for number, blob in ipairs(keys.blobs) do
  if redis.call('EXISTS', blob) == 1 then redis.call('RENAME', blob, keys.branch_blobs[number]) end
end
local id, queue = accept(branch, {entry = args.entry, sid = args.branch_sid, grace_ms = args.grace_ms,
  session_key = args.session_key, lane = 'agents'})
remove_entry(keys.inbound, args.entry_id)
local now = now_ms()
redis.call('HSET', outcome, 'status', 'running', 'verdict', now .. ' branch',
  'moved', now .. ' ' .. args.branch_sid .. '-' .. id)
add_child(keys.children, args.branch_sid, idle, args.known_ms)
if args.acknowledgement then put_reply(keys.replies, args.acknowledgement) end
return result{status = 'moved', entry_id = id, queue = queue}
