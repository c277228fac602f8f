-- Return a session's state, and the entries that its running turn answers.
-- uses: edits
-- keys: state, inbound
-- result: state, entries
local batch, steered = unpack(redis.call('HMGET', keys.state, 'batch', 'steered'))
local entries = {}
for _, ids in ipairs({batch or '', steered or ''}) do
  for _, id in ipairs(split(ids)) do
    entries[#entries + 1] = entries_of(keys.inbound, id, id)[1]
  end
end
return result{state = redis.call('HGETALL', keys.state), entries = entries}
