-- The usage of turns and asides: tokens, time and cost, as numbers in the order of the fields of `Usage`.
-- It is added to the sums of the agent, of the session's day, of the agent's hour, of a day and a month (all, the agent,
-- each person), and of the conversation with its tasks, in the hash of its own session.
-- keys: usage, usage_day, usage_hour, spent; args: agent, sid, root, payers?, usage_ms, zone_offsets
--   usage_day, usage_hour, spent: the beginnings of the keys; root: the id of the conversation's session; payers: the names
--   of the people who share the usage, each on a line; zone_offsets: pairs of a time and the zone's offset from then on, in
--   milliseconds

-- The sums of hours are kept for this long: eight days, and the hours of the day before that are not over yet.
local HOURS_MS = 9 * 24 * 3600 * 1000

local function numbers_of(text)
  local numbers = {}
  for number in string.gmatch(text or '', '%-?%d+') do numbers[#numbers + 1] = tonumber(number) end
  return numbers
end

local function text_of(numbers)
  return string.format(string.sub(string.rep(' %d', #numbers), 2), unpack(numbers))
end

-- `one` plus or, with the sign -1, less `other`: lists of numbers, of which each may be shorter than the other.
local function combined(one, other, sign)
  local sums = {}
  for position = 1, math.max(#one, #other) do
    sums[position] = (one[position] or 0) + sign * (other[position] or 0)
  end
  return sums
end

-- The sum of two texts; each may be missing.
local function summed(one, other) return text_of(combined(numbers_of(one), numbers_of(other), 1)) end

-- The day and the hour of the server's clock, as 2026-11-26 and 2026-11-26T09.
local function today(zone_offsets)
  local now, offset = now_ms(), 0
  for start, value in string.gmatch(zone_offsets, '(%d+) (%-?%d+)') do
    if tonumber(start) <= now then offset = tonumber(value) end
  end
  -- Hinnant's civil_from_days: years that begin in March, in eras of 400.
  local days = math.floor((now + offset) / 86400000) + 719468
  local era = math.floor(days / 146097)
  local of_era = days - era * 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) -
    math.floor(of_era / 146096)) / 365)
  local of_year = of_era - 365 * year - math.floor(year / 4) + math.floor(year / 100)
  local month = math.floor((5 * of_year + 2) / 153)
  local day = of_year - math.floor((153 * month + 2) / 5) + 1
  year, month = era * 400 + year, month + 3
  if month > 12 then year, month = year + 1, month - 12 end
  local date = string.format('%04d-%02d-%02d', year, month, day)
  return date, string.format('%sT%02d', date, math.floor((now + offset) / 3600000) % 24)
end

-- The share of one of `count` people. The shares add up to the numbers.
local function share(numbers, position, count)
  if count == 1 then return numbers end
  local part = {}
  for index, number in ipairs(numbers) do
    part[index] = math.floor(number * position / count) - math.floor(number * (position - 1) / count)
  end
  return part
end

local function lines_of(text)
  local lines = {}
  for line in string.gmatch(text or '', '[^\n]+') do lines[#lines + 1] = line end
  return lines
end

-- Add to each field of a hash its numbers.
local function add_to(key, fields, numbers)
  local stored, sums = redis.call('HMGET', key, unpack(fields)), {}
  for position, field in ipairs(fields) do
    sums[2 * position - 1] = field
    sums[2 * position] = text_of(combined(numbers_of(stored[position]), numbers[position], 1))
  end
  redis.call('HSET', key, unpack(sums))
end

-- Add what `total` has more than what was `counted` of it, which people may have shared before.
local function count_usage(keys, args, total, counted, payers_before)
  local new = combined(total, counted, -1)
  local fields, numbers, positions = {'all', 'agent ' .. args.agent}, {new, new}, {}
  local function share_out(payers, used, sign)
    for number, name in ipairs(payers) do
      local position = positions[name] or #fields + 1
      positions[name], fields[position] = position, 'person ' .. name
      numbers[position] = combined(numbers[position] or {}, share(used, number, #payers), sign)
    end
  end
  share_out(lines_of(args.payers), total, 1)
  share_out(lines_of(payers_before), counted, -1)
  local root, day, hour = 'rc:state:{' .. args.root .. '}', today(args.zone_offsets)
  add_to(keys.usage, {args.agent}, {new})
  add_to(keys.usage_day .. day, {args.agent .. ' ' .. args.sid}, {new})
  redis.call('PEXPIRE', keys.usage_day .. day, args.usage_ms)
  add_to(keys.usage_hour .. hour, {'agent ' .. args.agent}, {new})
  redis.call('PEXPIRE', keys.usage_hour .. hour, HOURS_MS)
  for _, key in ipairs({keys.spent .. day, keys.spent .. string.sub(day, 1, 7)}) do
    add_to(key, fields, numbers)
    redis.call('PEXPIRE', key, args.usage_ms)
  end
  if redis.call('EXISTS', root) == 1 then add_to(root, {'tree ' .. args.root}, {new}) end
end

-- Add usage, on its own.
local function add_usage(keys, args, usage) count_usage(keys, args, numbers_of(usage), {}, '') end

-- Add what a turn has used since the last call: `total` is that of all its attempts. The state remembers what was counted,
-- and who shared it, so a repeated call adds nothing.
local function add_turn_usage(keys, args, total)
  local counted = redis.call('HGET', keys.state, 'counted') or ''
  local numbers, payers = string.match(counted, '^([^\n]*)\n?(.*)$')
  count_usage(keys, args, numbers_of(total), numbers_of(numbers), payers)
  redis.call('HSET', keys.state, 'counted', total .. '\n' .. (args.payers or ''))
end

-- Note how long the first entry of a turn that ends now had waited until the turn began, if it is the longest wait of this
-- hour.
local function note_wait(keys, args, waited_ms)
  local _, hour = today(args.zone_offsets)
  local longest_ms = tonumber(redis.call('HGET', keys.usage_hour .. hour, 'wait') or -1)
  if waited_ms > longest_ms then redis.call('HSET', keys.usage_hour .. hour, 'wait', waited_ms) end
  redis.call('PEXPIRE', keys.usage_hour .. hour, HOURS_MS)
end

-- Add the usage of the attempt so far, of which the turn goes on.
local function add_usage_so_far(keys, args)
  redis.call('HSET', keys.state, 'spent_now', args.usage)
  add_turn_usage(keys, args, summed(redis.call('HGET', keys.state, 'spent') or '', args.usage))
end

-- Add the usage of the aside about an entry, once: the entry's outcome remembers it.
local function add_aside_usage(keys, args, outcome)
  if args.usage and redis.call('HSETNX', outcome, 'aside_usage', 'used ' .. args.usage) == 1 then
    add_usage(keys, args, args.usage)
  end
end
