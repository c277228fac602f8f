-- Count what the running turn has used so far, and check its budgets.
-- uses: usage, budgets
-- keys: state, usage, usage_day, usage_hour, spent, spent_in*, budgets*
-- args: epoch, turn, usage?, agent, sid, root, payers?, usage_ms, zone_offsets, limits?
-- result: reached, budgets
--   usage: that of the attempt so far
local fence = fenced_turn(keys.state, args)
if fence then return fence end
if args.usage then add_usage_so_far(keys, args) end
local reached, budgets = check_budgets(keys, args)
return result{reached = reached, budgets = budgets}
