-- Say who a session's agent speaks for now: its turn, and the entries that the turn answers.
-- KEYS state, inbound
-- → key, state, turn, epoch, attempt, granted tools (JSON), depth (nothing: 0), key of the session that
--   has started it (nothing: people talk with it), task (nothing: likewise), entries
local found = redis.call('HMGET', KEYS[1], 'key', 'state', 'turn', 'epoch', 'attempt', 'tools',
  'depth', 'parent', 'task', 'batch', 'steered')
local entries = {}
for _, ids in ipairs({found[10] or '', found[11] or ''}) do
  for _, id in ipairs(split(ids)) do
    local entry = redis.call('XRANGE', KEYS[2], id, id)[1]
    if entry then entries[#entries + 1] = entry end
  end
end
return {found[1] or '', found[2] or '', found[3] or '', found[4] or '', found[5] or '',
  found[6] or '', found[7] or '', found[8] or '', found[9] or '', entries}
