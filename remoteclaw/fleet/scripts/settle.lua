-- Note how a run of a cron job ended, and what that means for the job.
-- Of any number of schedulers that want to, one does: afterwards the run is not open any more.
-- KEYS jobs, due times, open runs, their looks, runs of the job, runs of all, reply stream
-- ARGV the run's name, the run as it was, the job's id, job as it was (nothing: there is none),
--      job (nothing: it is done with; as it was: it stays as due as it is), when it is due next ms
--      (nothing: never),
--      how many runs of a job are kept, of all, for how long ms,
--      a due time without a run (JSON, or nothing), how the run ended: entry id and JSON,
--      what the chat is told (JSON, or nothing)
-- → done|changed|settled
if redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[2] then return 'settled' end
if (redis.call('HGET', KEYS[1], ARGV[3]) or '') ~= ARGV[4] then return 'changed' end
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
for _, line in ipairs({ARGV[11], ARGV[10] ~= '' and ' ' .. ARGV[10] or nil}) do
  for position, most in pairs({[5] = ARGV[7], [6] = ARGV[8]}) do
    redis.call('LPUSH', KEYS[position], line)
    redis.call('LTRIM', KEYS[position], 0, most - 1)
    redis.call('PEXPIRE', KEYS[position], ARGV[9])
  end
end
if ARGV[5] ~= ARGV[4] then
  if ARGV[5] == '' then
    redis.call('HDEL', KEYS[1], ARGV[3])
  else
    redis.call('HSET', KEYS[1], ARGV[3], ARGV[5])
  end
  if ARGV[6] == '' then
    redis.call('ZREM', KEYS[2], ARGV[3])
  else
    redis.call('ZADD', KEYS[2], ARGV[6], ARGV[3])
  end
end
if ARGV[12] ~= '' then put_reply(KEYS[7], ARGV[12]) end
return 'done'
