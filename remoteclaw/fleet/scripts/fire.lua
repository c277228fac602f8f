-- Take a due time of a cron job: give its message to its session, note that, and set the next one.
-- Of any number of schedulers that want the same due time, one gets it: afterwards it is another.
-- KEYS jobs, due times, runs of the job, runs of all, then to run: inbound, state, active, sessions,
--      seen
-- ARGV id, job as it was, when it was due ms, job (nothing: it is done with), when it is due next ms
--      (nothing: never), how many runs of a job are kept, of all, for how long ms,
--      the run that was missed (JSON, or nothing), the run (JSON, or nothing),
--      then to run: entry, sid, grace ms, dedupe ms, outcome prefix, session key, lane, bell,
--      the part of the server's memory beyond which nothing is accepted
-- → done|changed|full, entry id, queue if a hint is due, else nothing
local function note(run)
  for position, most in pairs({[3] = ARGV[6], [4] = ARGV[7]}) do
    redis.call('LPUSH', KEYS[position], run)
    redis.call('LTRIM', KEYS[position], 0, most - 1)
    redis.call('PEXPIRE', KEYS[position], ARGV[8])
  end
end
local job, due = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('ZSCORE', KEYS[2], ARGV[1])
local is_current = job == ARGV[2] and tonumber(due) == tonumber(ARGV[3])
if not is_current then return {'changed', '', ''} end
local id, queue = '', ''
-- A clock that was set back makes a due time come again; its message doesn't.
local is_new = #KEYS > 4 and redis.call('EXISTS', KEYS[9]) == 0
if is_new then
  if memory_used() > tonumber(ARGV[19]) then return {'full', '', ''} end
  local keys = {inbound = KEYS[5], state = KEYS[6], active = KEYS[7], sessions = KEYS[8]}
  id, queue = accept(keys, ARGV[11], ARGV[12], ARGV[13], ARGV[15], ARGV[16], ARGV[17], ARGV[18])
  redis.call('SET', KEYS[9], id, 'PX', ARGV[14])
end
if ARGV[9] ~= '' then note(' ' .. ARGV[9]) end
if ARGV[10] ~= '' and (is_new or #KEYS == 4) then note(id .. ' ' .. ARGV[10]) end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
end
if ARGV[5] == '' then
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[2], ARGV[5], ARGV[1])
end
return {'done', id, queue}
