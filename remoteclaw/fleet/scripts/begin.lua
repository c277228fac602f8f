-- Record what the next attempt is about to do, before it does anything.
-- A batch that was recorded and never finished is begun again, exactly as it was.
-- KEYS state, inbound
-- ARGV epoch, nonce, outcome prefix, entry ids (comma between), phase, detail (for people)
-- → begun|stopped|missing, turn, attempt, phase of the attempt before, entries, attempts that were
--   cut off on purpose
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local recorded = redis.call('HMGET', KEYS[1], 'batch', 'attempt', 'phase', 'begun', 'before', 'stop',
  'forgiven')
local batch, attempt, phase, begun, before, stop, forgiven = unpack(recorded)
attempt = tonumber(attempt or 0)
if begun ~= ARGV[2] then
  batch = batch or ARGV[4]
  attempt = attempt + 1
  before = further(before or '', phase or '')
end
local entries = {}
for _, id in ipairs(split(batch)) do
  local found = redis.call('XRANGE', KEYS[2], id, id)
  if found[1] then entries[#entries + 1] = found[1] end
end
if not entries[1] then  -- only an operator's own XDEL or DEL can do that
  redis.call('HDEL', KEYS[1], 'turn', 'batch', 'attempt', 'phase', 'begun', 'before', 'published',
    'forgiven')
  return {'missing'}
end
local turn = entries[1][1]
if begun ~= ARGV[2] then
  local now = now_ms()
  redis.call('HSET', KEYS[1], 'batch', batch, 'turn', turn, 'attempt', attempt,
    'phase', ARGV[5], 'begun', ARGV[2], 'before', before, 'published', 0)
  for _, entry in ipairs(entries) do
    local outcome = ARGV[3] .. entry[1]
    redis.call('HSET', outcome, 'status', 'running', 'turn', turn, 'begun.' .. attempt, now)
    if ARGV[5] ~= 'accepted' then
      redis.call('HSET', outcome, ARGV[5] .. '.' .. attempt, now .. ' ' .. ARGV[6])
    end
  end
end
local verdict = id_at_most(entries[#entries][1], stop) and 'stopped' or 'begun'
return {verdict, turn, attempt, before, entries, tonumber(forgiven or 0)}
