-- List the workers of RemoteClaw's queues that RQ lists and that did not say that they end.
-- keys: rq_workers, processes
-- args: beat_ms, lanes*
--   beat_ms: the time for which a sign of life counts
-- row: name, host_id, host, pid, state, queues, job, birth, beat, announced, listeners
--   host_id: empty if it serves no host's queue; beat: the worker's sign of life; announced: its last announcement, if
--   it gives no sign of life; listeners: the number of those that listen for RQ's commands to it
local is_lane, found = {}, {}

-- The identity of a worker's process, as of its last announcement. Two containers can have the same name and process
-- ids. Only a worker of an earlier version, or one whose host has the id of another host, is found by them.
local function beat_of(announced, host, pid)
  if announced.hostname ~= host then return redis.call('GET', 'rc:worker:' .. host .. ':' .. pid) or '' end
  return now_ms() - announced.at_ms < tonumber(args.beat_ms) and announced.identity or ''
end

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
    local host_id = string.match(queues, '@([^,]+)') or ''
    local stored = redis.call('HGET', keys.processes, 'worker ' .. host_id .. ' ' .. (pid or ''))
    local announced = stored and cjson.decode(stored) or {}
    if announced.hostname and announced.hostname ~= host then stored = nil end
    local beat = beat_of(announced, host or '', pid or '')
    found[#found + 1] = row{
      name = name, host_id = host_id, host = host or '', pid = pid or '', state = state or '', queues = queues,
      job = job or '', birth = birth or '', beat = beat, announced = beat == '' and stored or '',
      listeners = redis.call('PUBSUB', 'NUMSUB', 'rq:pubsub:' .. name)[2],
    }
  end
end
return found
