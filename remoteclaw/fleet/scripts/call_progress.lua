-- Store the agent's own report of a task's progress, until the turn ends, and announce it.
-- uses: calls, work
-- keys: caller_state?, call, caller_side_effects?, sent?, live_of?
-- args: epoch?, turn?, call_ms, effect?, effect_ms, progress, above?, hint?
-- result: status, values
local answered = answer_call(keys, args)
if answered then return answered end
if is_full_for('tools') then return result{status = 'no room'} end
redis.call('HSET', keys.caller_state, 'progress', args.progress)
announce_work(args.above, keys.live_of, args.hint)
return end_call(keys, args, {})
