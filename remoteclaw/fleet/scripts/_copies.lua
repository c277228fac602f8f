-- Copies of conversations, with which another session begins.

-- Copy the ids of a conversation, each marked, and its record. A copy is made where the conversation is: at
-- its host and in its project.
-- source, target: each with state, session_map and record; it: names, mark, keep_ms
-- → how many ids were copied, whether there was a record
local function copy_conversation(source, target, it)
  local running, finished, host = unpack(redis.call('HMGET', source.state, 'turn', 'finished_turn', 'host'))
  local copied = 0
  for _, name in ipairs(it.names) do
    local id = redis.call('HGET', source.session_map, name)
    -- In its first turn, there is nothing yet that could be copied.
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
    local left = redis.call('PTTL', source.record)
    if left > 0 then redis.call('PEXPIRE', target.record, left) end
  end
  if copied == 0 and not record then return 0, false end
  if host then redis.call('HSET', target.state, 'host', host) end
  local project = redis.call('HGET', source.state, 'project')
  if project then redis.call('HSET', target.state, 'project', project) end
  return copied, record and true or false
end
