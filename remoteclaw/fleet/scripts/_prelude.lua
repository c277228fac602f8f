-- Put before every script. Time is the server's own, in milliseconds.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The time on the clock that numbers a session's entries: it never goes back, although the server's
-- own may have been set right.
local function by_now(state)
  local last = redis.call('HGET', state, 'last')
  return math.max(now_ms(), last and tonumber(string.match(last, '^%d+')) or 0)
end

-- How far an attempt has come. What an earlier attempt did is done, however far a later one came.
local progress = {[''] = 0, accepted = 1, postponed = 1, spawned = 2, output = 3, tool = 4, dropped = 5}
local function further(one, other)
  return progress[other] > progress[one] and other or one
end

-- Fencing (Kleppmann 2016): every write of a lease's owner carries the epoch it was given, and
-- none is obeyed once a newer one was given out. Expiry plays no part here: only acquire looks at
-- it, so an owner that is late but alone still finishes.
local function fenced(state, epoch)
  local current = redis.call('HGET', state, 'epoch')
  if current == epoch then return nil end
  -- An epoch that is newer than the last one: the server has lost the lease, and with it what the turn has
  -- come to. The next attempt has to know that an agent may have been asked.
  local before = redis.call('HMGET', state, 'state', 'before')
  if before[1] == 'scheduled' and tonumber(current or 0) < tonumber(epoch) then
    redis.call('HSET', state, 'before', further(before[2] or '', 'spawned'))
  end
  return redis.error_reply('FENCED epoch ' .. epoch .. ' is not ' .. (current or 'known'))
end

-- The limit of [redis] maxmemory in bytes; 0 for none. The server's own may be lower.
local MAX_MEMORY = 0

-- The bytes that the server uses, the limit that counts, and the server's own. Where none is set, half of
-- its machine counts; 0 where it doesn't say.
local function memory()
  local info = redis.pcall('INFO', 'memory')
  if type(info) ~= 'string' then return 0, 0, 0 end
  local function said(name) return tonumber(string.match(info, '\n' .. name .. ':(%d+)')) or 0 end
  local own, limit = said('maxmemory'), MAX_MEMORY
  if own > 0 and (limit == 0 or own < limit) then limit = own end
  if limit == 0 then limit = math.floor(said('total_system_memory') / 2) end
  return said('used_memory'), limit, own
end

-- The part of the memory that is in use; 0 where there is no limit.
local function memory_used()
  local used, limit = memory()
  return limit > 0 and used / limit or 0
end

-- The parts of the server's memory beyond which nothing more is taken in: files first, then what agents
-- ask for with tools, then messages. The rest is for what was accepted, and for RQ's own keys: a turn's
-- answer has a million characters at most and stands on the stream and in one outcome, with 64 KB of it in
-- up to 40 others, so it puts out 5 MB. A fifth of 512 MB is enough for twenty such turns at once; usual
-- ones put out some KB.
local MOST_USED = {files = 0.6, tools = 0.7, messages = 0.8}
local function is_full_for(what) return memory_used() > MOST_USED[what] end

local HOUR_MS = 3600 * 1000

-- What the tools of one turn, and of a chat's turns within an hour, may send.
local MOST_OF_TURN = {messages = 100, bytes = 1024 * 1024}
local MOST_OF_HOUR = {messages = 300, bytes = 4 * 1024 * 1024}

-- Whether a call would send more than its turn may, or its chat within the hour.
-- added: messages, bytes
-- → nothing, or what it would be: turn|hour, messages|bytes, how many, and how many are the most
local function sends_too_much(state, hour, added)
  for _, counted in ipairs({{'turn', state, MOST_OF_TURN}, {'hour', hour, MOST_OF_HOUR}}) do
    local scope, key, most = unpack(counted)
    for what, number in pairs(added) do
      local sent = number + (tonumber(redis.call('HGET', key, 'sent_' .. what)) or 0)
      if sent > most[what] then return table.concat({scope, what, sent, most[what]}, '\n') end
    end
  end
  return nil
end

-- Count what a call has sent.
local function count_sent(state, hour, added)
  for what, number in pairs(added) do
    redis.call('HINCRBY', state, 'sent_' .. what, number)
    redis.call('HINCRBY', hour, 'sent_' .. what, number)
  end
  if redis.call('PTTL', hour) < 0 then redis.call('PEXPIRE', hour, HOUR_MS) end
end

-- How many bytes a stream takes; 0 where the server doesn't say.
local function bytes_of(stream)
  local bytes = redis.pcall('MEMORY', 'USAGE', stream, 'SAMPLES', 0)
  return type(bytes) == 'number' and bytes or 0
end

-- Stream ids compare as two numbers, not as text.
local function id_at_most(id, limit)
  if not limit then return false end
  local ms, seq = string.match(id, '(%d+)-(%d+)')
  local limit_ms, limit_seq = string.match(limit, '(%d+)-(%d+)')
  ms, seq, limit_ms, limit_seq = tonumber(ms), tonumber(seq), tonumber(limit_ms), tonumber(limit_seq)
  return ms < limit_ms or (ms == limit_ms and seq <= limit_seq)
end

local function split(text)
  local parts = {}
  for part in string.gmatch(text, '[^,]+') do parts[#parts + 1] = part end
  return parts
end

-- Of some ids, oldest first: those that a stop covers if it covers the first one, else all. So a stop
-- that comes between two messages ends the one and not the other.
local function up_to_stop(ids, stop)
  local parts = split(ids)
  if not id_at_most(parts[1], stop) then return ids end
  local covered = {}
  for _, id in ipairs(parts) do
    if id_at_most(id, stop) then covered[#covered + 1] = id end
  end
  return table.concat(covered, ',')
end

-- No turn is recorded any more.
local function forget_turn(state)
  redis.call('HDEL', state, 'turn', 'batch', 'attempt', 'phase', 'begun', 'before', 'published',
    'forgiven', 'mentioned', 'steered', 'postponed', 'resumed', 'tries', 'told', 'later',
    'sent_messages', 'sent_bytes')
end

-- The RQ queue for a session's hints: that of the host which has its agent, while a worker of that
-- host lives. Its key can't be given to a script: the host is known inside only.
local function queue_of(state)
  local lane, host = unpack(redis.call('HMGET', state, 'lane', 'host'))
  lane = lane or 'agents'
  if host and redis.call('EXISTS', 'rc:host:' .. lane .. '@' .. host) == 1 then
    return lane .. '@' .. host
  end
  return lane
end

-- A session's key as it is kept: a program that knows no tasks reads the rest of it, and the task
-- stands apart.
local function keep_key(state, key)
  local conversation, task = string.match(key, '^(.*/[^:]*:[^:]*:[^:]*):([^:]+)$')
  redis.call('HSET', state, 'key', conversation or key)
  if task then redis.call('HSET', state, 'task', task) end
end

local function key_of(state)
  local key, task = unpack(redis.call('HMGET', state, 'key', 'task'))
  return key and (task and key .. ':' .. task or key) or ''
end

-- The RQ queue if a session waits for a worker, else nothing: one that is postponed waits for its time.
local function queue_if_scheduled(state)
  local now, not_before = unpack(redis.call('HMGET', state, 'state', 'not_before'))
  return now == 'scheduled' and not not_before and queue_of(state) or ''
end

-- Let a postponed session be served now.
local function wake(sid, state)
  if redis.call('HDEL', state, 'not_before') == 1 then redis.call('ZADD', 'rc:active', now_ms(), sid) end
end

-- What no adapter reads is kept for three days, and 10,000 replies or 32 MB of it: a platform that is
-- connected later gets no answers to what was asked weeks ago, and the rest of the server keeps its memory.
-- An adapter that was there within the hour is only being started again: nothing of its is given up.
local UNREAD_MS, MOST_UNREAD = 3 * 24 * 3600 * 1000, 10000
local MOST_UNREAD_BYTES = 32 * 1024 * 1024
local AWAY_MS = HOUR_MS

-- Whether no adapter has read for an account, named as in the set of readers, for an hour.
local function is_unread(account)
  local claimed = redis.call('ZSCORE', 'rc:readers', account)
  return not claimed or now_ms() - claimed > AWAY_MS
end

-- Take a reply from a stream, with its files; the entries that it answers tell why.
local function give_up(stream, id, payload, why)
  redis.call('XDEL', stream, id)
  local is_readable, reply = pcall(cjson.decode, payload)
  if not is_readable or type(reply) ~= 'table' or type(reply.sid) ~= 'string' then return end
  for _, file in ipairs(reply.attachments or {}) do
    redis.call('UNLINK', 'rc:blob:{' .. reply.sid .. '}:' .. file.blob)
  end
  for _, entry in ipairs(reply.entries or {}) do
    local outcome = 'rc:oc:{' .. reply.sid .. '}:' .. entry
    if redis.call('EXISTS', outcome) == 1 then
      redis.call('HSETNX', outcome, 'undelivered', now_ms() .. ' ' .. why)
    end
  end
end

-- Take the oldest reply from a stream that no adapter reads, if it is older than that, or one too many;
-- the entries that it answers tell so. bytes: what the stream takes, which is slow to measure
-- → how many bytes it takes less, or nothing if none was taken
local function give_up_oldest(stream, most, bytes)
  local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  if not oldest then return nil end
  local age = now_ms() - tonumber(string.match(oldest[1], '^%d+'))
  if age <= UNREAD_MS and redis.call('XLEN', stream) <= most and bytes <= MOST_UNREAD_BYTES then
    return nil
  end
  give_up(stream, oldest[1], oldest[2][2], 'no adapter has read it')
  return #oldest[2][2]
end

-- Take so many replies at most, from the oldest on.
local function give_up_unread(stream, most, looks)
  local bytes = bytes_of(stream)
  while looks > 0 do
    local gone = give_up_oldest(stream, most, bytes)
    if not gone then return end
    bytes, looks = bytes - gone, looks - 1
  end
end

-- Put a reply on its stream. → its id there
local function put_reply(stream, payload)
  local id = redis.call('XADD', stream, '*', 'reply', payload)
  local provider, account = string.match(stream, '^rc:out:(.-):(.*)$')
  if is_unread(provider .. '\0' .. account) then
    give_up_unread(stream, MOST_UNREAD, 8)
  end
  return id
end

-- Store an entry, note the time, and schedule an idle session. With a bell, a running turn is told:
-- what no person has sent has none, and interrupts nothing. The next person who writes to a postponed
-- session is told that this waits too.
-- keys: inbound, state, active, sessions; stopped, below: how many entries this one has stopped here, and
-- in the sessions that this one has started, perhaps
-- → entry id, queue if a hint is due, else nothing
local function accept(keys, entry, sid, grace, outcomes, key, lane, bell, stopped, below)
  local now = now_ms()
  local id
  if stopped then
    id = redis.call('XADD', keys.inbound, '*', 'entry', entry, 'stopped', stopped, 'below', below)
  else
    id = redis.call('XADD', keys.inbound, '*', 'entry', entry)
  end
  local previous = redis.call('HGET', keys.state, 'last') or ''
  redis.call('HSET', outcomes .. id, 'status', 'accepted', 'accepted', now, 'previous', previous)
  redis.call('HSET', keys.state, 'last', id)
  keep_key(keys.state, key)
  redis.call('PERSIST', keys.state)
  redis.call('PERSIST', keys.inbound)
  redis.call('ZADD', keys.sessions, now, sid)
  if bell ~= '' then
    redis.call('HSET', keys.state, 'said', id)
    if redis.call('HEXISTS', keys.state, 'turn') == 1 then redis.call('PUBLISH', bell, 'entry ' .. id) end
  end
  local state, lane_now, not_before, later =
    unpack(redis.call('HMGET', keys.state, 'state', 'lane', 'not_before', 'later'))
  if state then
    if not_before and later and bell ~= '' then
      redis.call('HDEL', keys.state, 'later')
      local replies, payload = string.match(later, '^([^\n]*)\n(.*)$')
      put_reply(replies, payload)
    end
    if lane_now == lane or lane ~= 'agents' then return id, '' end
    -- A person writes to a session that waits behind the others.
    redis.call('HSET', keys.state, 'lane', lane)
    return id, queue_if_scheduled(keys.state)
  end
  redis.call('HSET', keys.state, 'state', 'scheduled', 'lane', lane)
  redis.call('ZADD', keys.active, now + grace, sid)
  return id, queue_of(keys.state)
end

-- The sessions that a session has started, and those that they have, each behind whoever started it.
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

-- Whether a session, or one that it has started, has something to do that somebody waits for.
local function is_unfinished(sid)
  local all = descendants(sid)
  all[#all + 1] = sid
  for _, each in ipairs(all) do
    local newest = redis.call('XREVRANGE', 'rc:in:{' .. each .. '}', '+', '-', 'COUNT', 1)[1]
    local unwanted = redis.call('HGET', 'rc:st:{' .. each .. '}', 'unwanted')
    if newest and not id_at_most(newest[1], unwanted) then return true end
  end
  return false
end

-- Stop all that a session has accepted so far; with `is_unwanted`, its result isn't told either.
-- → entries concerned; 0 means that there was nothing, or that a finish which came first has won
local function stop_one(sid, state, inbound, is_unwanted)
  local newest = redis.call('XREVRANGE', inbound, '+', '-', 'COUNT', 1)
  if not newest[1] then return 0 end
  redis.call('HSET', state, 'stop', newest[1][1])
  if is_unwanted then redis.call('HSET', state, 'unwanted', newest[1][1]) end
  if redis.call('HEXISTS', state, 'not_before') == 1 then
    wake(sid, state)
    -- Whoever does not wait for a limit's end may know that it has ended: the next turn finds out.
    local login = redis.call('HGET', state, 'login')
    if login then redis.call('DEL', login) end
  end
  redis.call('PUBLISH', 'rc:bell:{' .. sid .. '}', 'stop ' .. newest[1][1])
  return redis.call('XLEN', inbound)
end

-- Stop all that a session has started; nobody waits for it any more. → entries concerned
local function stop_below(sid)
  local count = 0
  for _, below in ipairs(descendants(sid)) do
    count = count + stop_one(below, 'rc:st:{' .. below .. '}', 'rc:in:{' .. below .. '}', true)
  end
  return count
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
