-- Sessions: stops, labels, and those that a session has started.

-- Let a postponed session be served now.
local function wake(sid, state)
  if redis.call('HDEL', state, 'postponed_until_ms') == 1 then redis.call('ZADD', 'rc:active', now_ms(), sid) end
end

-- The sessions that a session has started, and those that they have, each behind the session that started it.
-- Their keys can't be given to a script: who they are is known inside only.
local function descendants(sid)
  local found, position = {}, 1
  local parent = sid
  while parent do
    for _, child in ipairs(redis.call('ZRANGE', 'rc:kids:{' .. parent .. '}', 0, -1)) do
      found[#found + 1] = child
    end
    parent, position = found[position], position + 1
  end
  return found
end

-- Whether a session has work of its own whose result is awaited.
local function is_awaited(sid)
  local newest = redis.call('XREVRANGE', 'rc:in:{' .. sid .. '}', '+', '-', 'COUNT', 1)[1]
  local unwanted = redis.call('HGET', 'rc:st:{' .. sid .. '}', 'unwanted_entry')
  return newest and not id_at_most(newest[1], unwanted)
end

-- Whether a session, or one that it has started, has work whose result is awaited.
local function is_unfinished(sid)
  local all = descendants(sid)
  all[#all + 1] = sid
  for _, each in ipairs(all) do
    if is_awaited(each) then return true end
  end
  return false
end

-- How many of the sessions below one have work whose result is awaited, or wait for one that has.
local function unfinished_below(sid)
  local count = 0
  for _, child in ipairs(redis.call('ZRANGE', 'rc:kids:{' .. sid .. '}', 0, -1)) do
    local below = unfinished_below(child)
    count = count + below
    if below > 0 or is_awaited(child) then count = count + 1 end
  end
  return count
end

-- Of the sessions that a session has started: those that are idle, and how many are not.
local function idle_and_busy(children)
  local idle, busy = {}, 0
  for _, child in ipairs(redis.call('ZRANGE', children, 0, -1)) do
    if is_unfinished(child) then busy = busy + 1 else idle[#idle + 1] = child end
  end
  return idle, busy
end

-- Note that a session has started another one, and forget the oldest of many that are `idle`.
local function add_child(children, sid, idle, known_ms)
  redis.call('ZADD', children, now_ms(), sid)
  for position = 1, #idle - 50 do redis.call('ZREM', children, idle[position]) end
  redis.call('PEXPIRE', children, known_ms)
end

-- Stop all that a session has accepted so far; with `is_unwanted`, its result isn't told either.
-- → entries concerned; 0 means that there was nothing, or that a finish which came first has won
local function stop_one(sid, state, inbound, is_unwanted)
  void_asks(sid, nil, 'It was stopped.')
  local newest = redis.call('XREVRANGE', inbound, '+', '-', 'COUNT', 1)
  if not newest[1] then return 0 end
  redis.call('HSET', state, 'stop_entry', newest[1][1])
  if is_unwanted then redis.call('HSET', state, 'unwanted_entry', newest[1][1]) end
  if redis.call('HEXISTS', state, 'postponed_until_ms') == 1 then wake(sid, state) end
  redis.call('PUBLISH', 'rc:bell:{' .. sid .. '}', '')
  return redis.call('XLEN', inbound)
end

-- Whether a session has a person's message that was moved to it.
local function is_moved(sid) return redis.call('HEXISTS', 'rc:st:{' .. sid .. '}', 'moved_entry') == 1 end

-- Stop all that a session has started; its results are not awaited any more. With `but_moved`, not what answers a
-- person's message that was moved from it. → entries concerned
local function stop_below(sid, but_moved)
  local count = 0
  for _, child in ipairs(redis.call('ZRANGE', 'rc:kids:{' .. sid .. '}', 0, -1)) do
    if not (but_moved and is_moved(child)) then
      count = count + stop_one(child, 'rc:st:{' .. child .. '}', 'rc:in:{' .. child .. '}', true) + stop_below(child)
    end
  end
  return count
end

-- Note with what answers messages that were moved from a session that its conversation has ended. With
-- `forgets_others`, all else that it has started is not its own any more.
local function end_above(sid, forgets_others)
  local children = 'rc:kids:{' .. sid .. '}'
  for _, child in ipairs(redis.call('ZRANGE', children, 0, -1)) do
    if is_moved(child) and is_unfinished(child) then
      redis.call('HSET', 'rc:st:{' .. child .. '}', 'ended_above', 1)
    elseif forgets_others then
      redis.call('ZREM', children, child)
    end
  end
end

-- Give a session the one label of its kind; of an agent's sessions that are known, no two have the
-- same. labels: the agent's, → the id of the session that has it, if that is another one
local function name_it(labels, label, sid, state)
  local owner = redis.call('HGET', labels, label)
  if owner and owner ~= sid and redis.call('EXISTS', 'rc:st:{' .. owner .. '}') == 1 then return owner end
  local before = redis.call('HGET', state, 'label')
  if before and before ~= label then redis.call('HDEL', labels, before) end
  redis.call('HSET', labels, label, sid)
  redis.call('HSET', state, 'label', label)
  -- Sessions that are forgotten leave theirs behind: two are looked at whenever one is added.
  for _, other in ipairs(redis.call('HRANDFIELD', labels, 2)) do
    local whose = redis.call('HGET', labels, other)
    if redis.call('EXISTS', 'rc:st:{' .. whose .. '}') == 0 then redis.call('HDEL', labels, other) end
  end
  return nil
end
