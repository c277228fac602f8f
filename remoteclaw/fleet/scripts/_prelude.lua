-- Comes first in every script, before the parts that the script uses, and before the code that makes the tables `keys`
-- and `args` of KEYS and ARGV. All times are in milliseconds on the server's clock.

-- A key or an argument; nil if the caller has left it out.
local function given_key(key)
  if key ~= 'rc:no-key' then return key end
end
local function given(value)
  if value ~= '' then return value end
end

-- Consecutive lists with the lengths `counts`, from the values after `position`.
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

-- The time on the clock of a session's entry ids. Unlike the server's clock, it never goes back.
local function entry_clock_ms(state)
  local last = redis.call('HGET', state, 'last_entry')
  return math.max(now_ms(), last and tonumber(string.match(last, '^%d+')) or 0)
end

-- The phases of an attempt, in their order. What an earlier attempt has done stays done, even if a later attempt ends in
-- an earlier phase.
local phase_order = {[''] = 0, accepted = 1, postponed = 1, spawned = 2, output = 3, tool = 4, dropped = 5}
local function later_phase(one, other)
  return phase_order[other] > phase_order[one] and other or one
end

-- Fencing (Kleppmann 2016): every write of a lease's owner carries the epoch of its lease, and is refused once a newer
-- epoch was given out. Only acquire checks the expiry, so a late owner still finishes if nobody has taken over.
local function fenced(state, epoch)
  local current = redis.call('HGET', state, 'epoch')
  if current == epoch then return nil end
  -- An epoch that is newer than the stored one: the server has lost its last writes, with the lease and the phase of the
  -- turn. The next attempt has to know that an agent may have received the prompt.
  local before = redis.call('HMGET', state, 'status', 'phase_before')
  if before[1] == 'scheduled' and tonumber(current or 0) < tonumber(epoch) then
    redis.call('HSET', state, 'phase_before', later_phase(before[2] or '', 'spawned'))
  end
  return redis.error_reply('FENCED epoch ' .. epoch .. ' is not ' .. (current or 'known'))
end

-- The fence of a write that only the recorded turn may do.
local function fenced_turn(state, args)
  local fence = fenced(state, args.epoch)
  if fence then return fence end
  if redis.call('HGET', state, 'turn') ~= args.turn then
    return redis.error_reply('FENCED turn ' .. args.turn .. ' is not running')
  end
end

-- The fence of a write by the reader of an account's replies. An expired claim counts until another adapter has one.
local function fenced_reader(reader, token)
  local current = redis.call('GET', reader)
  if current and current ~= token then
    return redis.error_reply('FENCED another adapter reads for this account')
  end
end

-- The id of the server's run; nil if it does not say.
local function run_id()
  local server = redis.pcall('INFO', 'server')
  return type(server) == 'string' and string.match(server, 'run_id:(%x+)') or nil
end

-- The fence of a write that depends on earlier ones, which are of the run `before`; nil if it does not.
local function fenced_run(before)
  if before and before ~= run_id() then
    return redis.error_reply('FENCED Redis was restarted, and may have lost what it stored last')
  end
end

-- The limit of [redis] maxmemory, in bytes; 0 for none. The server's own limit may be lower.
local MAX_MEMORY = 0

-- The used bytes, the limit that applies, and the server's own limit. Without any limit, half of the machine's memory is
-- the limit; 0 if the server doesn't report it.
local function memory()
  local info = redis.pcall('INFO', 'memory')
  if type(info) ~= 'string' then return 0, 0, 0 end
  local function value_of(name) return tonumber(string.match(info, '\n' .. name .. ':(%d+)')) or 0 end
  local own, limit = value_of('maxmemory'), MAX_MEMORY
  if own > 0 and (limit == 0 or own < limit) then limit = own end
  if limit == 0 then limit = math.floor(value_of('total_system_memory') / 2) end
  return value_of('used_memory'), limit, own
end

-- The used part of the memory, from 0 to 1; 0 without a limit.
local function memory_used()
  local used, limit = memory()
  return limit > 0 and used / limit or 0
end

-- The used parts of the memory beyond which the server accepts no more files, tool calls, and messages, in this order.
-- The rest is for the answers of accepted messages, and for RQ's keys. An answer has a million characters at most. It is
-- on the reply stream and in one outcome, with 64 KB of it in up to 40 others, so a turn puts out at most 5 MB. A fifth
-- of 512 MB is enough for twenty such turns at once; usual turns put out some KB.
local MAX_USED = {files = 0.6, tools = 0.7, messages = 0.8}
local function is_full_for(kind) return memory_used() > MAX_USED[kind] end

local HOUR_MS = 3600 * 1000

-- The size of a stream in bytes; 0 if the server doesn't report it.
local function bytes_of(stream)
  local bytes = redis.pcall('MEMORY', 'USAGE', stream, 'SAMPLES', 0)
  return type(bytes) == 'number' and bytes or 0
end

-- Whether a stream id is at most `limit`; false without a limit. The ids compare as two numbers, not as text.
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

-- What is recorded about a turn and its attempts.
local TURN_FIELDS = {'turn', 'batch', 'attempt', 'phase', 'attempt_nonce', 'phase_before', 'published_count',
  'forgiven_attempts', 'left_out', 'steered', 'postponed_reason', 'is_resumed', 'tries', 'last_notice', 'doing', 'progress',
  'refusal'}

-- Remove everything that is recorded about a turn.
local function forget_turn(state)
  local turn, opening = unpack(redis.call('HMGET', state, 'turn', 'terminal_entry'))
  if opening and opening == turn then redis.call('HDEL', state, 'terminal_entry') end
  redis.call('HDEL', state, 'terminal', 'held', 'stopped_terminal', 'spent', 'spent_now', 'counted', unpack(TURN_FIELDS))
end

-- The entries of the recorded turn, those that are to join it, and those of the kept batch.
local function taken_up(state)
  local found = {}
  for _, ids in ipairs(redis.call('HMGET', state, 'batch', 'steered', 'kept_batch', 'kept_steered')) do
    for _, id in ipairs(split(ids or '')) do found[#found + 1] = id end
  end
  return found
end

-- Whether an entry was stopped: with everything up to a later one, or alone, if it has opened a terminal.
local function is_stopped(state, id)
  local stop, terminal = unpack(redis.call('HMGET', state, 'stop_entry', 'stopped_terminal'))
  return id == terminal or id_at_most(id, stop)
end

-- Announce that the list of sessions, their usage or the dead letters have changed.
local function announce_sessions() redis.call('PUBLISH', 'rc:session-updates', '') end

-- The RQ queue for a session's hints: the queue of the host that has its agent, while a worker serves that queue, else
-- the queue of its lane; an agent that has a label has lanes of its own. The key for this can't be given to a script,
-- because only the script knows the host.
local function queue_of(state)
  local lane, host, session = unpack(redis.call('HMGET', state, 'lane', 'host', 'key'))
  lane = lane or 'agents'
  local label = session and redis.call('HGET', 'rc:pools', string.match(session, '^[^/]*'))
  if label then lane = lane .. '.' .. label end
  if host and redis.call('EXISTS', 'rc:host:' .. lane .. '@' .. host) == 1 then
    return lane .. '@' .. host
  end
  return lane
end

-- The RQ queue if a session waits for a worker, else nothing: a postponed session waits for its time.
local function queue_if_scheduled(state)
  local status, postponed_until = unpack(redis.call('HMGET', state, 'status', 'postponed_until_ms'))
  return status == 'scheduled' and not postponed_until and queue_of(state) or ''
end
