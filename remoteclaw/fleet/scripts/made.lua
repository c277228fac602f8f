-- Say what became of a change of the configuration that a person has decided; the session whose agent has asked for it
-- hears it, too.
-- uses: replies, asks, entries
-- keys: ask, changes, state, inbound, active, sessions
-- args: id, became, words, is_told, sid, entry, grace_ms, outcomes, session_key, lane
--   became: used|denied|void
-- → queue if a hint is due, else nothing
redis.call('SREM', keys.changes, args.id)
if redis.call('HGET', keys.ask, 'state') ~= 'answered' then return queue_if_scheduled(keys.state) end  -- said before
redis.call('HSET', keys.ask, 'became', args.words)
close_ask(args.id, args.became, args.words)
if args.is_told == '0' then return '' end
local _, queue = accept(keys, args)
return queue
