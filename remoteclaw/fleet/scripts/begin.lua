-- Record what the next attempt is about to do, before it does anything.
-- A batch that was recorded and never finished is begun again, exactly as it was. After two failures
-- each of its entries is begun by itself, so that one which kills its worker takes no other along.
-- keys: state, inbound
-- args: epoch, nonce, outcomes, entry_ids, phase, detail, left_out
-- → begun|stopped|dropped|missing, turn, attempt, furthest phase of the attempts before, entries, attempts
--   that were cut off on purpose, ids that the agent is only told of, when the session became busy,
--   its own queue settings, 1 if the attempt before was postponed, tries so far, what the person was told
--   of that, its own model, the project that the turn works in, 1 if the session has started others, 1 if
--   something was said beside its turns
-- Of some ids, oldest first: those that a stop covers if it covers the first one, else all. So a stop
-- that comes between two messages ends the one and not the other.
local function up_to_stop(ids, stop)
  local parts = split(ids)
  if not id_at_most(parts[1], stop) then return ids end
  local covered = {}
  for _, id in ipairs(parts) do
    if id_at_most(id, stop) then covered[#covered + 1] = id end
  end
  return table.concat(covered, ',')
end

-- Some ids, oldest first: what joined beside the turn came in the order of the answers about it.
local function in_order(ids)
  local parts = split(ids)
  table.sort(parts, function(one, other) return one ~= other and id_at_most(one, other) end)
  return table.concat(parts, ',')
end

-- In how many attempts an entry has been, two at most: what joined a turn late was in fewer.
local function attempts_at(outcome)
  local count = 0
  for _, field in ipairs(redis.call('HKEYS', outcome)) do
    if string.match(field, '^begun%.') or string.match(field, '^steered%.') then count = count + 1 end
  end
  return math.min(count, 2)
end

local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local recorded = redis.call('HMGET', keys.state, 'batch', 'attempt', 'phase', 'attempt_nonce', 'phase_before',
  'stop_entry', 'forgiven_attempts', 'left_out', 'singly_entry', 'steered')
local batch, attempt, phase, begun, before, stop, forgiven, mentioned, singly, steered = unpack(recorded)
attempt, forgiven = tonumber(attempt or 0), tonumber(forgiven or 0)
local wanted = args.phase
-- What is recorded goes first: that others are to be dropped has to wait.
if batch and begun ~= args.nonce and wanted == 'dropped' then wanted = 'accepted' end
if begun ~= args.nonce then
  before = further(before or '', phase or '')
  if steered then
    -- The attempt before may have told its agent of these, so from now on they belong to the batch.
    if batch then batch = in_order(batch .. ',' .. steered) end
    redis.call('HDEL', keys.state, 'steered')
  end
  if not batch then
    batch, mentioned = up_to_stop(args.entry_ids, stop), args.left_out
    if batch ~= args.entry_ids then mentioned = '' end  -- stopped, so there is nothing to mention it to
    local head = split(batch)[1]
    if wanted ~= 'dropped' and singly then
      if id_at_most(head, singly) then
        batch, mentioned, attempt = head, '', attempts_at(args.outcomes .. head)
        -- What came between those that were tried before was in no attempt itself.
        before = attempt > 0 and 'output' or ''
      else
        redis.call('HDEL', keys.state, 'singly_entry')
        redis.call('UNLINK', 'rc:spawned:' .. string.match(keys.state, '{.-}'))
      end
    end
  elseif attempt - forgiven >= 2 and before ~= 'dropped' and string.find(batch, ',') then
    local ids = split(batch)
    redis.call('HSET', keys.state, 'singly_entry', ids[#ids])
    -- What would only have been mentioned is dropped first, as it would have been.
    if mentioned ~= '' then batch, before = mentioned, 'dropped' else batch = ids[1] end
    mentioned = ''
  end
  attempt = attempt + 1
end
local entries = {}
for _, id in ipairs(split(batch)) do
  local found = redis.call('XRANGE', keys.inbound, id, id)
  if found[1] then entries[#entries + 1] = found[1] end
end
if not entries[1] then  -- only an operator's own XDEL or DEL can do that
  forget_turn(keys.state)
  return {'missing'}
end
local turn = entries[1][1]
if begun ~= args.nonce then
  -- The agent of an attempt that was cut off has no turn: only a new grant lets one call tools.
  -- The one of an attempt that was postponed waits for this one.
  local is_resumed = redis.call('HDEL', keys.state, 'postponed_reason') == 1
  if attempt > 1 and wanted ~= 'spawned' and not is_resumed then redis.call('HDEL', keys.state, 'grant') end
  redis.call('HSET', keys.state, 'is_resumed', is_resumed and 1 or 0)
  local now = now_ms()
  redis.call('HSETNX', keys.state, 'busy_since_ms', now)
  if attempt == 1 then  -- a turn that is begun again works where it was
    local project = redis.call('HGET', keys.state, 'project')
    if project then
      redis.call('HSET', keys.state, 'turn_project', project)
    else
      redis.call('HDEL', keys.state, 'turn_project')
    end
  end
  redis.call('HSET', keys.state, 'batch', batch, 'turn', turn, 'attempt', attempt, 'phase', wanted,
    'attempt_nonce', args.nonce, 'phase_before', before, 'published_count', 0, 'left_out', mentioned)
  for _, entry in ipairs(entries) do
    local outcome = args.outcomes .. entry[1]
    redis.call('HSET', outcome, 'status', 'running', 'turn', turn, 'begun.' .. attempt, now)
    if wanted ~= 'accepted' then
      redis.call('HSET', outcome, wanted .. '.' .. attempt, now .. ' ' .. args.detail)
    end
  end
end
local verdict = 'begun'
local is_dropped = before == 'dropped' or redis.call('HGET', keys.state, 'phase') == 'dropped'
if id_at_most(entries[#entries][1], stop) and (attempt == 1 or not is_dropped) then
  verdict = 'stopped'
elseif is_dropped then
  verdict = 'dropped'
end
local state = redis.call('HMGET', keys.state, 'busy_since_ms', 'queue_settings', 'is_resumed', 'tries', 'told',
  'model', 'turn_project')
return {verdict, turn, attempt, before, entries, forgiven, mentioned, state[1], state[2] or '',
  state[3] or '0', state[4] or '0', state[5] or '', state[6] or '', state[7] or '',
  redis.call('EXISTS', 'rc:kids:' .. string.match(keys.state, '{.-}')),
  redis.call('EXISTS', 'rc:beside:' .. string.match(keys.state, '{.-}'))}
