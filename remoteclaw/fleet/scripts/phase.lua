-- Record the phase that the attempt has reached. After a crash, the phase decides what may be repeated.
-- keys: state, outcome
-- args: epoch, turn, phase, detail?, agent_process?
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local running = redis.call('HMGET', keys.state, 'turn', 'attempt', 'batch')
if running[1] ~= args.turn then return 0 end
redis.call('HSET', keys.state, 'phase', args.phase)
if args.agent_process then redis.call('HSET', keys.state, 'agent_process', args.agent_process) end
local detail = now_ms() .. (args.detail and ' ' .. args.detail or '')
for _, id in ipairs(split(running[3])) do
  redis.call('HSET', keys.outcome .. id, args.phase .. '.' .. running[2], detail)
end
return 1
