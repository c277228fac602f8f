-- Put before every script, then the parts that it uses, then what makes `keys` and `args` of KEYS and ARGV.
-- Time is the server's own, in milliseconds.

-- A key or an argument; nil where the caller has left it out.
local function given_key(key)
  if key ~= 'rc:none' then return key end
end
local function given(value)
  if value ~= '' then return value end
end

-- Lists of so many values each, behind a position.
local function lists(values, position, counts)
  local found = {}
  for number, count in ipairs(counts) do
    local list = {}
    for offset = 1, tonumber(count) do list[offset] = values[position + offset] end
    found[number], position = list, position + count
  end
  return unpack(found)
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The time on the clock that numbers a session's entries: it never goes back, although the server's
-- own may have been set right.
local function by_now(state)
  local last = redis.call('HGET', state, 'last_entry')
  return math.max(now_ms(), last and tonumber(string.match(last, '^%d+')) or 0)
end

-- How far an attempt has come. What an earlier attempt did stays done, even where a later one came less far.
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
  local before = redis.call('HMGET', state, 'status', 'phase_before')
  if before[1] == 'scheduled' and tonumber(current or 0) < tonumber(epoch) then
    redis.call('HSET', state, 'phase_before', further(before[2] or '', 'spawned'))
  end
  return redis.error_reply('FENCED epoch ' .. epoch .. ' is not ' .. (current or 'known'))
end

-- The same for what only the turn that is recorded may do.
local function fenced_turn(state, args)
  local fence = fenced(state, args.epoch)
  if fence then return fence end
  if redis.call('HGET', state, 'turn') ~= args.turn then
    return redis.error_reply('FENCED turn ' .. args.turn .. ' is not running')
  end
end

-- The same for the reader of an account's replies; a claim that only ran out still counts.
local function fenced_reader(reader, token)
  local current = redis.call('GET', reader)
  if current and current ~= token then
    return redis.error_reply('FENCED another adapter reads for this account')
  end
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
local MAX_USED = {files = 0.6, tools = 0.7, messages = 0.8}
local function is_full_for(what) return memory_used() > MAX_USED[what] end

local HOUR_MS = 3600 * 1000

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

-- No turn is recorded any more.
local function forget_turn(state)
  local turn, opening = unpack(redis.call('HMGET', state, 'turn', 'terminal_entry'))
  if opening and opening == turn then redis.call('HDEL', state, 'terminal_entry') end
  redis.call('HDEL', state, 'turn', 'batch', 'attempt', 'phase', 'attempt_nonce', 'phase_before', 'published_count',
    'forgiven_attempts', 'left_out', 'steered', 'postponed_reason', 'is_resumed', 'tries', 'told', 'doing', 'progress',
    'terminal', 'held')
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

-- The RQ queue if a session waits for a worker, else nothing: one that is postponed waits for its time.
local function queue_if_scheduled(state)
  local status, postponed_until = unpack(redis.call('HMGET', state, 'status', 'postponed_until_ms'))
  return status == 'scheduled' and not postponed_until and queue_of(state) or ''
end
