-- Close an answered request for a change of the configuration, and notify the session whose agent has asked for it.
-- uses: replies, requests, entries
-- keys: request, changes, state, inbound, active, sessions, outcome
-- args: request_id, became, words, notifies_session, sid, entry, grace_ms, session_key, lane
--   became: used|denied|void; words: what became of the change, as text
-- → queue if a hint is due, else nothing
redis.call('SREM', keys.changes, args.request_id)
if redis.call('HGET', keys.request, 'state') ~= 'answered' then  -- a repeated call
  return queue_if_scheduled(keys.state)
end
redis.call('HSET', keys.request, 'became', args.words)
close_request(args.request_id, args.became, args.words)
if args.notifies_session == '0' then return '' end
local _, queue = accept(keys, args)
return queue
