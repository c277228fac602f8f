-- Budgets: limits on what is spent within a day, a month or a tree of tasks.
-- keys: spent_in*, budgets*: for each budget, the hash with the sum of what was spent, and the budget's own hash
-- args: limits?: for each budget the field of its sum, and its limits in micro-dollars, tokens and milliseconds, 0 for no
--   limit, as a JSON list of lists
-- The fields of a budget's own hash: request: the id of the newest request to owners · halves: how often they have added
--   half of the limit · verdict: lifted|stopped, until the period ends · has_warned · told CHANNEL:ID: the day on which a
--   person was told that messages are refused

-- The part of a limit that was spent: 1 at the limit, 0 if more was corrected than spent. Read from a cache is free;
-- `halves` make the limit larger.
local function part_spent(sum, limits, halves)
  local numbers = {}
  for number in string.gmatch(sum or '', '%-?%d+') do numbers[#numbers + 1] = tonumber(number) end
  local function number(index) return numbers[index] or 0 end
  local spent, part = {number(7), number(2) + number(3) + number(5), number(6)}, 0
  for index = 1, 3 do
    local limit = limits[index + 1] * (1 + halves / 2)
    if limit > 0 then part = math.max(part, spent[index] / limit) end
  end
  return part
end

-- Compare what was spent with each limit.
-- → the position of the first budget whose limit is reached; for each budget its sum, halves, verdict and has_warned, as
--   JSON; the number of budgets whose limit is reached
local function check_budgets(keys, args)
  if not args.limits then return nil, nil, 0 end
  local reached, found, count = nil, {}, 0
  for number, limits in ipairs(cjson.decode(args.limits)) do
    local sum = redis.call('HGET', keys.spent_in[number], limits[1])
    local halves, verdict, has_warned = unpack(redis.call('HMGET', keys.budgets[number], 'halves', 'verdict', 'has_warned'))
    found[number] = {sum or '', tonumber(halves or 0), verdict or '', has_warned or ''}
    local is_reached = verdict == 'stopped' or part_spent(sum, limits, tonumber(halves or 0)) >= 1
    if is_reached and verdict ~= 'lifted' then reached, count = reached or number, count + 1 end
  end
  return reached, cjson.encode(found), count
end
