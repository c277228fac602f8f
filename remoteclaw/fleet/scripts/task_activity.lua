-- Store what the running turn of a task does, until it ends, and announce it.
-- uses: work
-- keys: state, live_of?
-- args: epoch, turn, doing?, is_first, above?, hint?
--   doing: the last tool and the last text, as JSON; is_first: whether this is the attempt's first report
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'turn') ~= args.turn then return 0 end
if is_full_for('messages') then return 0 end
if args.is_first == '1' then redis.call('HDEL', keys.state, 'doing', 'progress') end
if args.doing then redis.call('HSET', keys.state, 'doing', args.doing) end
announce_work(args.above, keys.live_of, args.hint)
return 1
