-- Remove a report that was handled from the inbox of its account.
-- keys: reader, inbox, account
-- args: token, id, is_accepted
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
if redis.call('HDEL', keys.inbox, args.id) == 0 then return 0 end  -- a repeated call
redis.call('HINCRBY', keys.account, args.is_accepted == '1' and 'accepted' or 'skipped', 1)
return 1
