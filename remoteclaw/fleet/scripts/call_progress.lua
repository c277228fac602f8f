-- Store the agent's own report of a task's progress, until the turn ends, and announce it.
-- uses: calls, work
-- keys: caller?, call, side_effects?, sent?, account?
-- args: epoch?, turn?, call_ms, note?, note_ms, progress, above?, hint?
-- → as in _calls.lua
local answered = answer_call(keys, args)
if answered then return answered end
if is_full_for('tools') then return {'no room', ''} end
redis.call('HSET', keys.caller, 'progress', args.progress)
announce_work(args.above, keys.account, args.hint)
return end_call(keys, args)
