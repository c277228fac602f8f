-- Release the lease until a time. The attempt has answered nothing and done nothing, and its batch is begun again then.
-- The session keeps its host, and with it the agent that waits there. If a terminal waits, it opens meanwhile.
-- uses: replies, kept, usage, cooling
-- keys: state, active, inbound, replies, live, outcome, outcome_channel, usage, usage_day, usage_hour, spent, cool?
-- args: epoch, sid, newest, until_ms, reason, tries, last_notice, detail, usage?, agent, root, payers?,
--   usage_ms, zone_offsets, notice?, category?, cool_until_ms?, default_ms?
-- result: verdict, queue
--   newest: the newest entry that the caller knows; last_notice: the text of the last notice to the person; category,
--   cool_until_ms, default_ms: why, until when, or else how long the one that was asked last is left alone
--   verdict: postponed|stopped|news: an entry has arrived that the caller doesn't know and has to handle first;
--   queue: for the hint that is due, if any
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local state, batch, steered, attempt, stop, turn, opening = unpack(redis.call('HMGET', keys.state, 'status', 'batch',
  'steered', 'attempt', 'stop_entry', 'turn', 'terminal_entry'))
if state ~= 'running' then  -- a repeated call
  return result{verdict = 'postponed', queue = queue_if_scheduled(keys.state)}
end
if keys.cool then cool(keys.cool, args.category, args.cool_until_ms, args.default_ms) end
local ids = split(batch)
if id_at_most(ids[#ids], stop) then return result{verdict = 'stopped'} end
local newest = redis.call('XREVRANGE', keys.inbound, '+', '-', 'COUNT', 1)[1]
if newest and not id_at_most(newest[1], args.newest) then return result{verdict = 'news'} end
local now = now_ms()
redis.call('HSET', keys.state, 'status', 'scheduled', 'postponed_until_ms', args.until_ms,
  'postponed_reason', args.reason, 'tries', args.tries, 'last_notice', args.last_notice, 'phase', 'postponed')
if args.usage then add_usage_so_far(keys, args) end
redis.call('HDEL', keys.state, 'lease_nonce', 'lease_until_ms', 'worker', 'fallback')
redis.call('HINCRBY', keys.state, 'forgiven_attempts', 1)
redis.call('ZADD', keys.active, args.until_ms, args.sid)
announce_sessions()
for _, id in ipairs(split(batch .. ',' .. (steered or ''))) do
  local outcome = keys.outcome .. id
  redis.call('HSET', outcome, 'status', 'accepted', 'postponed.' .. attempt, now .. ' ' .. args.detail)
  redis.call('PUBLISH', keys.outcome_channel, id)
end
redis.call('DEL', keys.live)
if args.notice then put_reply(keys.replies, args.notice) end
if opening and opening ~= turn and keep_batch(keys.state) then
  redis.call('ZADD', keys.active, now, args.sid)
end
return result{verdict = 'postponed', queue = queue_if_scheduled(keys.state)}
