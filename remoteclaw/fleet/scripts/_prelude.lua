-- Put before every script. Time is the server's own, in milliseconds.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Fencing (Kleppmann 2016): every write of a lease's owner carries the epoch it was given, and
-- none is obeyed once a newer one was given out. Expiry plays no part here: only acquire looks at
-- it, so an owner that is late but alone still finishes.
local function fenced(state, epoch)
  local current = redis.call('HGET', state, 'epoch')
  if current == epoch then return nil end
  return redis.error_reply('FENCED epoch ' .. epoch .. ' is not ' .. (current or 'known'))
end

-- The part of the server's memory that is in use; 0 where it has no limit, or doesn't say.
local function memory_used()
  local info = redis.pcall('INFO', 'memory')
  if type(info) ~= 'string' then return 0 end
  local limit = tonumber(string.match(info, 'maxmemory:(%d+)') or 0)
  return limit > 0 and tonumber(string.match(info, 'used_memory:(%d+)')) / limit or 0
end

-- Stream ids compare as two numbers, not as text.
local function id_at_most(id, limit)
  if not limit then return false end
  local ms, seq = string.match(id, '(%d+)-(%d+)')
  local limit_ms, limit_seq = string.match(limit, '(%d+)-(%d+)')
  ms, seq, limit_ms, limit_seq = tonumber(ms), tonumber(seq), tonumber(limit_ms), tonumber(limit_seq)
  return ms < limit_ms or (ms == limit_ms and seq <= limit_seq)
end

-- How far an attempt has come. What an earlier attempt did is done, however far a later one came.
local progress = {[''] = 0, accepted = 1, spawned = 2, output = 3, tool = 4}
local function further(one, other)
  return progress[other] > progress[one] and other or one
end

local function split(text)
  local parts = {}
  for part in string.gmatch(text, '[^,]+') do parts[#parts + 1] = part end
  return parts
end
