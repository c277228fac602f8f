-- End the wait of a postponed session, so that its agent is asked again now, or as soon as its terminal has ended.
-- uses: sessions
-- keys: state
-- args: sid
-- → session key, or nothing if it isn't postponed; queue if a hint is due, else nothing
if not wake(args.sid, keys.state) then return {'', ''} end
return {redis.call('HGET', keys.state, 'key') or '', queue_if_scheduled(keys.state)}
