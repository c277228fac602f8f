-- Move a person's message from a session to a new branch of it, which answers the person. The message is always on
-- exactly one stream. Its outcome in the first session names the branch, and ends with the branch's turn.
-- uses: replies, edits, asides, entries, sessions, copies, usage
-- keys: state, inbound, session_map, record, replies?, new_state, new_inbound, new_map, new_record, active,
--   sessions, children, usage, usage_day, blobs*, new_blobs*
-- args: epoch, entry_id, outcomes, sid, session_key, entry, grace_ms, new_outcomes, parent, limits, branch_of,
--   branch_limits, max_children, root, max_below, known_ms, mark, keep_ms, acknowledgement?, usage?, agent, usage_ms,
--   names*
-- → moved, entry id in the branch, queue if a hint is due, else nothing; full: too many sessions are unfinished; gone:
--   the message is answered, stopped or part of a turn
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local outcome = args.outcomes .. args.entry_id
local moved = redis.call('HGET', outcome, 'moved')
if moved then  -- a repeated call
  return {'moved', string.match(moved, '%d+%-%d+$'), queue_if_scheduled(keys.new_state)}
end
add_aside_usage(keys, {usage = args.usage, agent = args.agent, sid = args.root, usage_ms = args.usage_ms}, outcome)
local stop, project, model = unpack(redis.call('HMGET', keys.state, 'stop_entry', 'turn_project', 'model'))
if not is_untouched(keys, args.entry_id) or id_at_most(args.entry_id, stop) then return {'gone', '', ''} end
-- The agent was asked about an earlier version of the message.
if redis.call('HEXISTS', outcome, 'is_edited') == 1 then return {'gone', '', ''} end
local idle, busy = idle_and_busy(keys.children)
if busy >= tonumber(args.max_children) or unfinished_below(args.root) >= tonumber(args.max_below) or
  is_full_for('tools') then return {'full', '', ''} end
local branch = {state = keys.new_state, inbound = keys.new_inbound, session_map = keys.new_map, record = keys.new_record,
  active = keys.active, sessions = keys.sessions}
local copied = copy_conversation(keys, branch, args)
redis.call('HSET', branch.state, 'parent', args.parent, 'limits', args.limits, 'branch_of', args.branch_of,
  'branch_limits', args.branch_limits, 'moved_entry', args.entry_id, 'last_heard_ms', now_ms())
if copied > 0 then redis.call('HSET', branch.state, 'has_remembered', 1) end
if project then redis.call('HSET', branch.state, 'project', project) end
if model then redis.call('HSET', branch.state, 'model', model) end
for number, blob in ipairs(keys.blobs) do
  if redis.call('EXISTS', blob) == 1 then redis.call('RENAME', blob, keys.new_blobs[number]) end
end
local id, queue = accept(branch, {entry = args.entry, sid = args.sid, grace_ms = args.grace_ms,
  outcomes = args.new_outcomes, session_key = args.session_key, lane = 'agents'})
remove_entry(keys.inbound, args.entry_id)
local now = now_ms()
redis.call('HSET', outcome, 'status', 'running', 'verdict', now .. ' branch',
  'moved', now .. ' ' .. args.sid .. '-' .. id)
add_child(keys.children, args.sid, idle, args.known_ms)
if args.acknowledgement then put_reply(keys.replies, args.acknowledgement) end
return {'moved', id, queue}
