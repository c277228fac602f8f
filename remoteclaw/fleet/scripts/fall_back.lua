-- Note that a fallback is asked, or the session's agent again, and that the one that failed before it is left alone. So
-- far, nothing was done: after a crash here, the attempt counts as one that has asked nobody.
-- uses: cooling
-- keys: state, cool?, outcome
-- args: epoch, turn, detail, fallback?, category?, until_ms?, default_ms?
--   fallback: who is asked, for the state; none for the session's agent itself
local fence = fenced_turn(keys.state, args)
if fence then return fence end
redis.call('HSET', keys.state, 'phase', 'postponed')
if args.fallback then
  redis.call('HSET', keys.state, 'fallback', args.fallback)
else
  redis.call('HDEL', keys.state, 'fallback')
end
if keys.cool then cool(keys.cool, args.category, args.until_ms, args.default_ms) end
local attempt, batch = unpack(redis.call('HMGET', keys.state, 'attempt', 'batch'))
for _, id in ipairs(split(batch)) do
  redis.call('HSET', keys.outcome .. id, 'fallback.' .. attempt, now_ms() .. ' ' .. args.detail)
end
announce_sessions()
return 1
