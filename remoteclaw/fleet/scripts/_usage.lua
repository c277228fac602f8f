-- The usage of turns and asides: tokens, time and cost, as numbers in the order of the fields of `Usage`.

-- The sum of two lists of numbers; each may be missing, or shorter than the other.
local function summed(one, other)
  local sums, added, stored = {}, string.gmatch(one or '', '%d+'), string.gmatch(other or '', '%d+')
  local number, before = added(), stored()
  while number or before do
    sums[#sums + 1] = string.format('%.0f', tonumber(number or 0) + tonumber(before or 0))
    number, before = number and added(), before and stored()
  end
  return table.concat(sums, ' ')
end

-- Add usage to the agent's sums, and to the session's of the day.
-- keys: usage, usage_day; args: usage, agent, sid, usage_ms
local function add_usage(keys, args)
  local field = args.agent .. ' ' .. args.sid
  redis.call('HSET', keys.usage, args.agent, summed(args.usage, redis.call('HGET', keys.usage, args.agent)))
  redis.call('HSET', keys.usage_day, field, summed(args.usage, redis.call('HGET', keys.usage_day, field)))
  redis.call('PEXPIRE', keys.usage_day, args.usage_ms)
end

-- Add the usage of the aside about an entry, once: the entry's outcome remembers it.
-- keys, args: those of add_usage; usage may be missing
local function add_aside_usage(keys, args, outcome)
  if args.usage and redis.call('HSETNX', outcome, 'aside_usage', 'used ' .. args.usage) == 1 then add_usage(keys, args) end
end
