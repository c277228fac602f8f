-- Tell owners that most of a budget is spent, once until its limit changes or its period ends.
-- uses: replies
-- keys: budget, replies
-- args: budget_ms, notice
-- → 1 if they are told now
if redis.call('HSETNX', keys.budget, 'has_warned', 1) == 0 then return 0 end
redis.call('PEXPIRE', keys.budget, args.budget_ms)
put_reply(keys.replies, args.notice)
return 1
