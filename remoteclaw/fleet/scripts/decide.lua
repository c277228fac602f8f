-- Say what became of a change that waited to be confirmed, unless something else did.
-- keys: approvals
-- args: id, before, after
-- → done|changed
local now = redis.call('HGET', keys.approvals, args.id)
if now == args.after then return 'done' end
if now ~= args.before then return 'changed' end
redis.call('HSET', keys.approvals, args.id, args.after)
return 'done'
