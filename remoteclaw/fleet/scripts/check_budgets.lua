-- Check budgets without a turn.
-- uses: budgets
-- keys: spent_in*, budgets*
-- args: limits?
-- result: reached, budgets
local reached, budgets = check_budgets(keys, args)
return result{reached = reached, budgets = budgets}
