-- Remove a dead worker, and the hint that it ran, from RQ's registries.
-- keys: rq_worker, rq_workers
-- args: name
-- → 1; 0 if it had said that it ends
if redis.call('HEXISTS', keys.rq_worker, 'death') == 1 then return 0 end
local queues = redis.call('HGET', keys.rq_worker, 'queues') or ''
for queue in string.gmatch(queues, '[^,]+') do
  local started = 'rq:wip:' .. queue
  -- The execution, not the worker's current job, because a worker may die between writing the two.
  for _, execution in ipairs(redis.call('ZRANGE', started, 0, -1)) do
    if redis.call('HGET', 'rq:execution:' .. execution, 'worker_name') == args.name then
      local job = string.match(execution, '^[^:]+')
      redis.call('ZREM', started, execution)
      redis.call('DEL', 'rq:execution:' .. execution, 'rq:executions:' .. job, 'rq:job:' .. job)
    end
  end
  redis.call('SREM', 'rq:workers:' .. queue, keys.rq_worker)
end
redis.call('SREM', keys.rq_workers, keys.rq_worker)
redis.call('DEL', keys.rq_worker)
return 1
