-- Record what the next attempt is about to do, before it does anything.
-- A batch that was recorded and never finished is begun again, exactly as it was. After two failures
-- each of its entries is begun by itself, so that one which kills its worker takes no other along.
-- KEYS state, inbound, what is known of its login's limit
-- ARGV epoch, nonce, outcome prefix, entry ids (comma between), phase, detail (for people),
--      those of them that the agent is only told of
-- → begun|stopped|dropped|missing, turn, attempt, furthest phase of the attempts before, entries, attempts
--   that were cut off on purpose, ids that the agent is only told of, when the session became busy,
--   its own queue settings, 1 if the attempt before was postponed, tries so far, what the person was told
--   of that, until when its login has no more ms
-- In how many attempts an entry has been, two at most: what joined a turn late was in fewer.
local function attempts_at(outcome)
  local count = 0
  for _, field in ipairs(redis.call('HKEYS', outcome)) do
    if string.match(field, '^begun%.') or string.match(field, '^steered%.') then count = count + 1 end
  end
  return math.min(count, 2)
end

local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local recorded = redis.call('HMGET', KEYS[1], 'batch', 'attempt', 'phase', 'begun', 'before', 'stop',
  'forgiven', 'mentioned', 'singly', 'steered')
local batch, attempt, phase, begun, before, stop, forgiven, mentioned, singly, steered = unpack(recorded)
attempt, forgiven = tonumber(attempt or 0), tonumber(forgiven or 0)
local wanted = ARGV[5]
-- What is recorded goes first: that others are to be dropped has to wait.
if batch and begun ~= ARGV[2] and wanted == 'dropped' then wanted = 'accepted' end
if begun ~= ARGV[2] then
  before = further(before or '', phase or '')
  if steered then
    -- The attempt before may have told its agent of these, so from now on they belong to the batch.
    if batch then batch = batch .. ',' .. steered end
    redis.call('HDEL', KEYS[1], 'steered')
  end
  if not batch then
    batch, mentioned = up_to_stop(ARGV[4], stop), ARGV[7]
    if batch ~= ARGV[4] then mentioned = '' end  -- stopped, so there is nothing to mention it to
    local head = split(batch)[1]
    if wanted ~= 'dropped' and singly then
      if id_at_most(head, singly) then
        batch, mentioned, attempt = head, '', attempts_at(ARGV[3] .. head)
        -- What came between those that were tried before was in no attempt itself.
        before = attempt > 0 and 'output' or ''
      else
        redis.call('HDEL', KEYS[1], 'singly')
        redis.call('UNLINK', 'rc:spawned:' .. string.match(KEYS[1], '{.-}'))
      end
    end
  elseif attempt - forgiven >= 2 and before ~= 'dropped' and string.find(batch, ',') then
    local ids = split(batch)
    redis.call('HSET', KEYS[1], 'singly', ids[#ids])
    -- What would only have been mentioned is dropped first, as it would have been.
    if mentioned ~= '' then batch, before = mentioned, 'dropped' else batch = ids[1] end
    mentioned = ''
  end
  attempt = attempt + 1
end
local entries = {}
for _, id in ipairs(split(batch)) do
  local found = redis.call('XRANGE', KEYS[2], id, id)
  if found[1] then entries[#entries + 1] = found[1] end
end
if not entries[1] then  -- only an operator's own XDEL or DEL can do that
  forget_turn(KEYS[1])
  return {'missing'}
end
local turn = entries[1][1]
if begun ~= ARGV[2] then
  -- The agent of an attempt that was cut off is nobody's: only a new grant lets one call tools.
  -- The one of an attempt that was postponed waits for this one.
  local is_resumed = redis.call('HDEL', KEYS[1], 'postponed') == 1
  if attempt > 1 and wanted ~= 'spawned' and not is_resumed then redis.call('HDEL', KEYS[1], 'tools') end
  redis.call('HSET', KEYS[1], 'resumed', is_resumed and 1 or 0)
  local now = now_ms()
  redis.call('HSETNX', KEYS[1], 'busy_since', now)
  redis.call('HSET', KEYS[1], 'batch', batch, 'turn', turn, 'attempt', attempt, 'phase', wanted,
    'begun', ARGV[2], 'before', before, 'published', 0, 'mentioned', mentioned)
  for _, entry in ipairs(entries) do
    local outcome = ARGV[3] .. entry[1]
    redis.call('HSET', outcome, 'status', 'running', 'turn', turn, 'begun.' .. attempt, now)
    if wanted ~= 'accepted' then
      redis.call('HSET', outcome, wanted .. '.' .. attempt, now .. ' ' .. ARGV[6])
    end
  end
end
local verdict = 'begun'
local is_dropped = before == 'dropped' or redis.call('HGET', KEYS[1], 'phase') == 'dropped'
if id_at_most(entries[#entries][1], stop) and (attempt == 1 or not is_dropped) then
  verdict = 'stopped'
elseif is_dropped then
  verdict = 'dropped'
end
local limited = redis.call('GET', KEYS[3])
if not limited or tonumber(limited) <= now_ms() then limited = '' end
local state = redis.call('HMGET', KEYS[1], 'busy_since', 'queue', 'resumed', 'tries', 'told')
return {verdict, turn, attempt, before, entries, forgiven, mentioned, state[1], state[2] or '',
  state[3] or '0', state[4] or '0', state[5] or '', limited}
