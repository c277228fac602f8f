-- Sessions: stops, labels, and the sessions that a session has started.

-- End the wait of a postponed session, so that the sweeper hints it now. A kept batch waits only for its terminal then.
-- → whether anything was postponed
local function wake(sid, state)
  local was_kept = redis.call('HDEL', state, 'kept_postponed_until_ms') == 1
  if was_kept then redis.call('PUBLISH', 'rc:bell:{' .. sid .. '}', '') end
  local was_postponed = redis.call('HDEL', state, 'postponed_until_ms') == 1
  if was_postponed then redis.call('ZADD', 'rc:active', now_ms(), sid) end
  announce_sessions()
  return was_kept or was_postponed
end

-- The sessions that wait for the budget `id`, or for any. Their keys can't be given to a script.
local function waiting_for_budgets(active, id)
  local found = {}
  for _, sid in ipairs(redis.call('ZRANGE', active, 0, -1)) do
    local budgets, until_ms = unpack(redis.call('HMGET', 'rc:state:{' .. sid .. '}', 'budgets', 'postponed_until_ms'))
    local is_one = budgets and (not id or string.find('\n' .. budgets .. '\n', '\n' .. id .. '\n', 1, true))
    if until_ms and is_one then found[#found + 1] = sid end
  end
  return found
end

-- The sessions that a session has started, and theirs, each after the session that started it.
-- Their keys can't be given to a script, because only the script knows their ids.
local function descendants(sid)
  local found, position = {}, 1
  local parent = sid
  while parent do
    for _, child in ipairs(redis.call('ZRANGE', 'rc:children:{' .. parent .. '}', 0, -1)) do
      found[#found + 1] = child
    end
    parent, position = found[position], position + 1
  end
  return found
end

-- Whether the session itself has work whose result is awaited.
local function is_awaited(sid)
  local newest = redis.call('XREVRANGE', 'rc:inbound:{' .. sid .. '}', '+', '-', 'COUNT', 1)[1]
  local unwanted = redis.call('HGET', 'rc:state:{' .. sid .. '}', 'unwanted_entry')
  return newest and not id_at_most(newest[1], unwanted)
end

-- Whether the session, or a session below it, has work whose result is awaited.
local function is_unfinished(sid)
  local all = descendants(sid)
  all[#all + 1] = sid
  for _, each in ipairs(all) do
    if is_awaited(each) then return true end
  end
  return false
end

-- The number of unfinished sessions below a session.
local function unfinished_below(sid)
  local count = 0
  for _, child in ipairs(redis.call('ZRANGE', 'rc:children:{' .. sid .. '}', 0, -1)) do
    local below = unfinished_below(child)
    count = count + below
    if below > 0 or is_awaited(child) then count = count + 1 end
  end
  return count
end

-- The finished sessions among `children`, oldest first, and the number of unfinished ones.
local function idle_and_busy(children)
  local idle, busy = {}, 0
  for _, child in ipairs(redis.call('ZRANGE', children, 0, -1)) do
    if is_unfinished(child) then busy = busy + 1 else idle[#idle + 1] = child end
  end
  return idle, busy
end

-- Add a session to the sessions that another one has started; of more than 50 `idle` ones, forget the oldest.
local function add_child(children, sid, idle, known_ms)
  redis.call('ZADD', children, now_ms(), sid)
  for position = 1, #idle - 50 do redis.call('ZREM', children, idle[position]) end
  redis.call('PEXPIRE', children, known_ms)
end

-- Stop everything that a session has accepted so far, and the delivery of its turns' replies. With `is_unwanted`, its
-- result is not reported either.
-- → the number of stopped entries; 0 if nothing was unfinished, or if the turn had just finished
local function stop_session(sid, state, inbound, is_unwanted)
  void_requests(sid, nil, 'It was stopped.')
  if redis.call('EXISTS', state) == 1 then redis.call('HSET', state, 'replies_stopped_ms', now_ms()) end
  local newest = redis.call('XREVRANGE', inbound, '+', '-', 'COUNT', 1)
  if not newest[1] then return 0 end
  redis.call('HSET', state, 'stop_entry', newest[1][1])
  redis.call('HDEL', state, 'budget_told')  -- who writes again is told again that it waits
  if is_unwanted then redis.call('HSET', state, 'unwanted_entry', newest[1][1]) end
  wake(sid, state)
  redis.call('PUBLISH', 'rc:bell:{' .. sid .. '}', '')
  return redis.call('XLEN', inbound)
end

-- Whether a session has a person's message that was moved to it.
local function is_moved(sid) return redis.call('HEXISTS', 'rc:state:{' .. sid .. '}', 'moved_entry') == 1 end

-- Stop all sessions below a session; their results are no longer awaited. With `but_moved`, except the branches that
-- answer a person's message which was moved from it. → the number of stopped entries
local function stop_below(sid, but_moved)
  local count = 0
  for _, child in ipairs(redis.call('ZRANGE', 'rc:children:{' .. sid .. '}', 0, -1)) do
    if not (but_moved and is_moved(child)) then
      count = count + stop_session(child, 'rc:state:{' .. child .. '}', 'rc:inbound:{' .. child .. '}', true) + stop_below(child)
    end
  end
  return count
end

-- Note in the branches that answer messages which were moved from a session that its conversation has ended. With
-- `forgets_others`, remove all other sessions from the list of those that it has started.
local function mark_end_above(sid, forgets_others)
  local children = 'rc:children:{' .. sid .. '}'
  for _, child in ipairs(redis.call('ZRANGE', children, 0, -1)) do
    if is_moved(child) and is_unfinished(child) then
      redis.call('HSET', 'rc:state:{' .. child .. '}', 'ended_above', 1)
    elseif forgets_others then
      redis.call('ZREM', children, child)
    end
  end
end

-- Give a session a label; no two existing sessions of an agent have the same one. labels: the labels of the agent
-- → the id of another session that has the label; nil if the session has it now
local function set_label(labels, label, sid, state)
  local owner = redis.call('HGET', labels, label)
  if owner and owner ~= sid and redis.call('EXISTS', 'rc:state:{' .. owner .. '}') == 1 then return owner end
  local before = redis.call('HGET', state, 'label')
  if before and before ~= label then redis.call('HDEL', labels, before) end
  redis.call('HSET', labels, label, sid)
  redis.call('HSET', state, 'label', label)
  -- Expired sessions leave their labels behind. Checking two labels for each new one removes them in time.
  for _, other in ipairs(redis.call('HRANDFIELD', labels, 2)) do
    local other_sid = redis.call('HGET', labels, other)
    if redis.call('EXISTS', 'rc:state:{' .. other_sid .. '}') == 0 then redis.call('HDEL', labels, other) end
  end
  return nil
end
