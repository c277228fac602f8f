-- Note what a turn does that is done for another session, until it ends.
-- uses: work
-- keys: state, account?
-- args: epoch, turn, doing?, is_first, above?, hint?
--   doing: the last tool and what was said last, as JSON; is_first: of this attempt
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'turn') ~= args.turn then return 0 end
if is_full_for('messages') then return 0 end
if args.is_first == '1' then redis.call('HDEL', keys.state, 'doing', 'progress') end
if args.doing then redis.call('HSET', keys.state, 'doing', args.doing) end
announce_work(args.above, keys.account, args.hint)
return 1
