-- Release the lease of a session whose next batch has not begun, because the limit of a budget is reached.
-- uses: replies, budgets
-- keys: state, active, inbound, replies?, outcome, outcome_channel, spent_in*, budgets*
-- args: epoch, sid, newest, until_ms, budget_ids, budget_name, detail, entry_ids, told, notice?, limits?
--   newest: the newest entry that the caller knows; until_ms: the end of the budget's period
--   budget_ids, budget_name: the budgets, a line each, and their name for people; told: what `notice` says, so that it is sent once
-- → waits; news: an entry has arrived that the caller doesn't know; passes: a limit isn't reached any more,
--   or an owner has just stopped what waits for it
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'status') ~= 'running' then return 'waits' end  -- a repeated call
local newest = redis.call('XREVRANGE', keys.inbound, '+', '-', 'COUNT', 1)[1]
if newest and not id_at_most(newest[1], args.newest) then return 'news' end
local _, _, count = check_budgets(keys, args)
if count < #keys.budgets then return 'passes' end
for _, budget in ipairs(keys.budgets) do  -- what an owner has stopped is refused, and doesn't wait
  if redis.call('HGET', budget, 'verdict') == 'stopped' then return 'passes' end
end
local now, told = now_ms(), redis.call('HGET', keys.state, 'budget_told')
redis.call('HSET', keys.state, 'status', 'scheduled', 'postponed_until_ms', args.until_ms, 'postponed_reason', 'budget',
  'budgets', args.budget_ids, 'budget_name', args.budget_name, 'budget_told', args.told)
redis.call('HDEL', keys.state, 'lease_nonce', 'lease_until_ms', 'worker')
redis.call('ZADD', keys.active, args.until_ms, args.sid)
announce_sessions()
for _, id in ipairs(split(args.entry_ids)) do
  redis.call('HSET', keys.outcome .. id, 'postponed', now .. ' ' .. args.detail)
  redis.call('PUBLISH', keys.outcome_channel, id)
end
if args.notice and told ~= args.told then put_reply(keys.replies, args.notice) end
return 'waits'
