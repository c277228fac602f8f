-- Copies of conversations, with which other sessions begin.

-- Copy the ids of a conversation, each with the mark that makes the CLI fork it, and its record. The copy belongs to the
-- same host and project as the conversation, because only there the CLI finds it.
-- source, target: each with state, session_map and record; it: names, mark, keep_ms
-- → the number of copied ids, whether there was a record
local function copy_conversation(source, target, it)
  local running, finished, host = unpack(redis.call('HMGET', source.state, 'turn', 'finished_turn', 'host'))
  local copied = 0
  for _, name in ipairs(it.names) do
    local id = redis.call('HGET', source.session_map, name)
    -- During the first turn, the CLI has nothing yet that it could copy.
    if id and (not running or finished) then
      local marked = string.sub(id, 1, #it.mark) == it.mark and id or it.mark .. id
      redis.call('HSET', target.session_map, name, marked)
      copied = copied + 1
    end
  end
  if copied > 0 then redis.call('PEXPIRE', target.session_map, it.keep_ms) end
  local record = redis.call('GET', source.record)
  if record then
    redis.call('SET', target.record, record)
    local left_ms = redis.call('PTTL', source.record)
    if left_ms > 0 then redis.call('PEXPIRE', target.record, left_ms) end
  end
  if copied == 0 and not record then return 0, false end
  if host then redis.call('HSET', target.state, 'host', host) end
  local project = redis.call('HGET', source.state, 'project')
  if project then redis.call('HSET', target.state, 'project', project) end
  return copied, record and true or false
end
