-- List the workers of RemoteClaw's queues that RQ lists and that did not say that they end.
-- keys: rq_workers, processes
-- args: lanes*
-- row: name, host, pid, state, queues, job, birth, beat, announced, listeners
--   beat: the worker's sign of life; announced: its last announcement, if it gives no sign of life; listeners: the number
--   of those that listen for RQ's commands to it
local is_lane, found = {}, {}
for _, lane in ipairs(args.lanes) do is_lane[lane] = true end
local names = redis.call('SMEMBERS', keys.rq_workers)
table.sort(names)
for _, key in ipairs(names) do
  local host, pid, state, queues, job, birth, death = unpack(redis.call('HMGET', key, 'hostname', 'pid', 'state',
    'queues', 'current_job', 'birth', 'death'))
  local serves = false
  for queue in string.gmatch(queues or '', '[^,]+') do
    serves = serves or is_lane[string.match(queue, '^[^@.]*')]
  end
  if serves and (not death or death == '') then
    local name = string.sub(key, #'rq:worker:' + 1)
    local beat = redis.call('GET', 'rc:worker:' .. (host or '') .. ':' .. (pid or ''))
    local field = 'worker ' .. (string.match(queues, '@([^,]*)') or '') .. ' ' .. (pid or '')
    found[#found + 1] = row{
      name = name, host = host or '', pid = pid or '', state = state or '', queues = queues, job = job or '',
      birth = birth or '', beat = beat or '',
      announced = not beat and redis.call('HGET', keys.processes, field) or '',
      listeners = redis.call('PUBSUB', 'NUMSUB', 'rq:pubsub:' .. name)[2],
    }
  end
end
return found
