-- The fleet's counters and histograms: fields of one hash, each a whole number, named with slashes.
-- keys: metrics; args: buckets
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
