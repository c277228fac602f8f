-- Read which processes own sessions with work.
-- keys: active
-- args: start, max_count, host
--   start: the number of sessions to skip; host: the host of the processes
-- result: count, owners
--   count: the number of sessions that were read
-- row: sid, epoch, worker
local sids = redis.call('ZRANGE', keys.active, args.start, args.start + args.max_count - 1)
local found, prefix = {}, args.host .. ' '
for _, sid in ipairs(sids) do
  local epoch, worker = unpack(redis.call('HMGET', 'rc:state:{' .. sid .. '}', 'epoch', 'worker'))
  if epoch and worker and string.sub(worker, 1, #prefix) == prefix then
    found[#found + 1] = row{sid = sid, epoch = epoch, worker = string.sub(worker, #prefix + 1)}
  end
end
return result{count = #sids, owners = found}
