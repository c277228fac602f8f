-- Note that a worker runs, and which queues of its host it serves.
-- uses: processes
-- keys: processes, drained, own, served*
--   own: its sign of life by the name of its host; served: the keys of the queues
-- args: field, host, version, uptime_ms, host_id, identity, hostname, beat_ms, is_ending
-- → 1 if its host is drained, else 0
announce_process(keys.processes, args.field, args, args.uptime_ms)
redis.call('SET', keys.own, args.identity, 'PX', args.beat_ms)
local is_drained = redis.call('HEXISTS', keys.drained, args.host_id)
for _, key in ipairs(keys.served) do
  if is_drained == 1 then
    redis.call('DEL', key)
  elseif args.is_ending ~= '1' then
    redis.call('SET', key, args.identity, 'PX', args.beat_ms)
  end
end
return is_drained
