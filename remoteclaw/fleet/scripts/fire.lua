-- Take a due time of a cron job: give its message to its session, note that, and set the next one.
-- Of any number of schedulers that want the same due time, one gets it: afterwards it is another.
-- KEYS jobs, due times, runs of the job, runs of all, then to run: open runs, their looks, inbound,
--      state, active, sessions, seen
-- ARGV id, job as it was, when it was due ms, job, when it is due next ms (nothing: never),
--      how many runs of a job are kept, of all, for how long ms,
--      a due time without a run (JSON, or nothing), then to run: the run's name, the run (JSON),
--      entry, sid, grace ms, dedupe ms, outcome prefix, session key, lane, bell
-- → done|changed|full|seen, entry id, queue if a hint is due, else nothing
local job, due = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('ZSCORE', KEYS[2], ARGV[1])
local is_current = job == ARGV[2] and tonumber(due) == tonumber(ARGV[3])
if not is_current then return {'changed', '', ''} end
local id, queue = '', ''
if #KEYS > 4 then
  -- A clock that was set back makes a due time come again; its message doesn't.
  if redis.call('EXISTS', KEYS[11]) == 1 then return {'seen', '', ''} end
  if is_full_for('messages') then return {'full', '', ''} end
  local keys = {inbound = KEYS[7], state = KEYS[8], active = KEYS[9], sessions = KEYS[10]}
  id, queue = accept(keys, ARGV[12], ARGV[13], ARGV[14], ARGV[16], ARGV[17], ARGV[18], ARGV[19])
  redis.call('SET', KEYS[11], id, 'PX', ARGV[15])
  redis.call('HSET', KEYS[5], ARGV[10], ARGV[16] .. id .. ' ' .. ARGV[11])
  redis.call('ZADD', KEYS[6], now_ms(), ARGV[10])
end
if ARGV[9] ~= '' then
  for position, most in pairs({[3] = ARGV[6], [4] = ARGV[7]}) do
    redis.call('LPUSH', KEYS[position], ' ' .. ARGV[9])
    redis.call('LTRIM', KEYS[position], 0, most - 1)
    redis.call('PEXPIRE', KEYS[position], ARGV[8])
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
if ARGV[5] == '' then
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[2], ARGV[5], ARGV[1])
end
return {'done', id, queue}
