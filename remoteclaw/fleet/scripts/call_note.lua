-- Add a side effect to the turn.
-- uses: calls
-- keys: caller_state?, call, caller_side_effects?, sent?
-- args: epoch?, turn?, call_ms, effect?, effect_ms
-- result: status, values
local answered = answer_call(keys, args)
if answered then return answered end
return end_call(keys, args, {})
