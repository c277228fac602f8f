-- The fleet's counters and histograms: fields of one hash, each a whole number, named with slashes.
-- keys: metrics, failed_turns; args: buckets
--   buckets: the upper bounds of all histograms, in milliseconds, ascending, separated by commas

-- Add an observation of `ms` milliseconds to the histogram `name` in `changes`: fields, and what is added to each.
local function observe(changes, name, ms, buckets)
  ms = math.max(ms, 0)  -- the clock may have been set back
  local bucket = 'more'
  for _, bound in ipairs(split(buckets)) do
    if ms <= tonumber(bound) then bucket = bound break end
  end
  changes[name .. '/' .. bucket], changes[name .. '/sum'] = 1, ms
end

-- Add to each field of the hash, in two commands.
local function add_metrics(key, changes)
  local fields, sums = {}, {}
  for field in pairs(changes) do fields[#fields + 1] = field end
  for position, before in ipairs(redis.call('HMGET', key, unpack(fields))) do
    sums[2 * position - 1] = fields[position]
    sums[2 * position] = string.format('%.0f', (before and tonumber(before) or 0) + changes[fields[position]])
  end
  redis.call('HSET', key, unpack(sums))
end

-- The number of failed turns that are kept, and for how long after the last one: about 30 KB, for a night.
local MAX_FAILED, FAILED_MS = 200, 24 * HOUR_MS

-- Keep a failed turn of an agent, with the number of the agent's turns that were answered before it. While that number
-- stays the same, all turns since have failed.
local function note_failure(keys, fields)
  local answered = redis.call('HGET', keys.metrics, 'turns/' .. fields[2] .. '/done/') or 0
  redis.call('XADD', keys.failed_turns, 'MAXLEN', MAX_FAILED, '*', 'answered', answered, unpack(fields))
  redis.call('PEXPIRE', keys.failed_turns, FAILED_MS)
end
