-- End the wait of a postponed session, so that its agent is asked again now, or as soon as its terminal has ended.
-- uses: sessions
-- keys: state
-- args: sid
-- result: session_key, queue
--   session_key: nothing if the session isn't postponed; queue: for the hint that is due, if any
if not wake(args.sid, keys.state) then return result{} end
return result{session_key = redis.call('HGET', keys.state, 'key'), queue = queue_if_scheduled(keys.state)}
