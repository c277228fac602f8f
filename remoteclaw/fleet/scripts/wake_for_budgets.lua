-- Wake all sessions that wait for a budget, because limits have changed. Those that are still reached are waited for again.
-- uses: sessions
-- keys: active
-- row: session_key, queue
--   the sessions for which a hint is due
local woken = {}
for _, sid in ipairs(waiting_for_budgets(keys.active)) do
  local key = 'rc:state:{' .. sid .. '}'
  wake(sid, key)
  woken[#woken + 1] = row{session_key = redis.call('HGET', key, 'key'), queue = queue_if_scheduled(key)}
end
return woken
