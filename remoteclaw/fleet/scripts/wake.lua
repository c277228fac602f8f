-- End the wait of a postponed session, so that its agent is asked again now.
-- uses: sessions
-- keys: state
-- args: sid
-- → session key, or nothing if it isn't postponed; queue if a hint is due, else nothing
if redis.call('HEXISTS', keys.state, 'postponed_until_ms') == 0 then return {'', ''} end
wake(args.sid, keys.state)
return {redis.call('HGET', keys.state, 'key') or '', queue_if_scheduled(keys.state)}
