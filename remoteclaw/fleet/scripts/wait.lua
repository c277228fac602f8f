-- Let a turn wait for another session's turn, if a worker stays free to run that one, and if that session doesn't wait
-- for the session of this turn itself.
-- keys: waits
-- args: name, wait_ms, workers, host?
--   name: the waiting session, its turn, the other session, and more; workers: the number of workers, on `host` if given
-- → free|full|circle
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', keys.waits, '-inf', now)
local function state_of(sid) return 'rc:state:{' .. sid .. '}' end
local own, _, target = string.match(args.name, '^(%x+) (%S+) (%x+) ')
local waits_for, count = {}, 0
local function takes_worker(sid)
  return not args.host or redis.call('HGET', state_of(sid), 'host') == args.host
end
for _, name in ipairs(redis.call('ZRANGE', keys.waits, 0, -1)) do
  local sid, turn, other = string.match(name, '^(%x+) (%S+) (%x+) ')
  if redis.call('HGET', state_of(sid), 'turn') ~= turn then
    redis.call('ZREM', keys.waits, name)  -- its turn is over
  else
    waits_for[sid] = waits_for[sid] or {}
    table.insert(waits_for[sid], other)
    if takes_worker(sid) then count = count + 1 end
  end
end
local reached, to_visit = {[target] = true}, {target}
while to_visit[1] do
  local sid = table.remove(to_visit)
  if sid == own then return 'circle' end
  for _, other in ipairs(waits_for[sid] or {}) do
    if not reached[other] then
      reached[other] = true
      to_visit[#to_visit + 1] = other
    end
  end
end
if takes_worker(own) then count = count + 1 end
if count >= tonumber(args.workers) then return 'full' end
redis.call('ZADD', keys.waits, now + args.wait_ms, args.name)
return 'free'
