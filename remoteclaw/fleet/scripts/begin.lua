-- Record what the next attempt is about to do, before it does anything.
-- A batch that was recorded and never finished is begun again, exactly as it was. After two failures, each of its entries
-- gets a turn of its own, so that an entry which kills its worker takes no other entry with it.
-- A kept batch comes after the session's terminal, and before everything else. If it is still postponed, the lease is
-- released.
-- A batch that has not begun is not recorded if the limit of a budget is reached.
-- uses: edits, usage, kept, budgets
-- keys: state, inbound, active, outcome, budget?, spent_in*, budgets*
-- args: epoch, nonce, entry_ids, phase, detail, left_out, sid, limits?, refused*
-- result: verdict, turn, attempt, phase_before, entries, forgiven_attempts, left_out, busy_since_ms, queue_settings,
--   is_resumed, tries, last_notice, model, turn_project, is_quiet, has_tasks, has_aside_notes, has_denials, spent,
--   refusal, reached, budgets
--   refused: to drop the batch for `budget`: the notice, the day, and the people who get the notice once on that day;
--   refusal: that notice, empty if all have had it
--   verdict: running|stopped|dropped|missing|postponed|over; phase_before: the furthest phase of the earlier attempts;
--   forgiven_attempts: the number of those that were cut off on purpose; is_resumed: 1 if the one before was postponed;
--   has_…: 1 if the session has started others, and if there are notes and reasons of denials for the agent;
--   spent: the usage of the earlier attempts; last_notice, model, …: as in the state; reached, budgets: of check_budgets

-- Of `ids`, oldest first: those up to the stop mark if it covers the first one, else all. So a stop between two messages
-- stops only the first one.
local function up_to_stop(ids, stop)
  local parts = split(ids)
  if not id_at_most(parts[1], stop) then return ids end
  local covered = {}
  for _, id in ipairs(parts) do
    if id_at_most(id, stop) then covered[#covered + 1] = id end
  end
  return table.concat(covered, ',')
end

-- Those of `ids` that are on the stream: a person may just have withdrawn a message.
local function on_stream(ids)
  local found = {}
  for _, id in ipairs(split(ids)) do
    if redis.call('XRANGE', keys.inbound, id, id)[1] then found[#found + 1] = id end
  end
  return table.concat(found, ',')
end

-- The ids, oldest first. Entries that joined the turn are recorded in the order of their verdicts.
local function in_order(ids)
  local parts = split(ids)
  table.sort(parts, function(one, other) return one ~= other and id_at_most(one, other) end)
  return table.concat(parts, ',')
end

-- The number of attempts that an entry was part of, two at most. An entry that joined a turn late was part of fewer.
local function attempts_at(outcome)
  local count = 0
  for _, field in ipairs(redis.call('HKEYS', outcome)) do
    if string.match(field, '^begun%.') or string.match(field, '^steered%.') then count = count + 1 end
  end
  return math.min(count, 2)
end

-- The notice about a batch that is dropped for a budget, and note that its people have had it; empty if they have before.
local function notice_of(refused)
  local notice, day = unpack(refused)
  local was_told = refused[3] ~= nil
  for number = 3, #refused do
    local field = 'told ' .. refused[number]
    was_told = redis.call('HGET', keys.budget, field) == day and was_told
    redis.call('HSET', keys.budget, field, day)
  end
  if redis.call('PTTL', keys.budget) < 0 then redis.call('PEXPIRE', keys.budget, 32 * 24 * HOUR_MS) end
  return was_told and '' or notice
end

local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'status') ~= 'running' then  -- a repeated call
  return result{verdict = 'postponed'}
end
local wanted, opening, reached, budgets = args.phase, nil, nil, nil
if redis.call('HEXISTS', keys.state, 'kept_batch') == 1 and redis.call('HEXISTS', keys.state, 'batch') == 0 then
  opening = on_stream(redis.call('HGET', keys.state, 'terminal_entry') or '')
  if opening ~= '' then
    args.entry_ids, args.left_out, wanted = opening, '', 'accepted'
  else
    restore_batch(keys.state)
    local until_ms = redis.call('HGET', keys.state, 'postponed_until_ms')
    if until_ms and tonumber(until_ms) > now_ms() then
      redis.call('HSET', keys.state, 'status', 'scheduled')
      redis.call('HDEL', keys.state, 'lease_nonce', 'lease_until_ms', 'worker')
      redis.call('ZADD', keys.active, until_ms, args.sid)
      announce_sessions()
      return result{verdict = 'postponed'}
    end
    redis.call('HDEL', keys.state, 'postponed_until_ms')
  end
end
local recorded = redis.call('HMGET', keys.state, 'batch', 'attempt', 'phase', 'attempt_nonce', 'phase_before',
  'stop_entry', 'forgiven_attempts', 'left_out', 'failed_batch_end', 'steered')
local batch, attempt, phase, attempt_nonce, phase_before, stop, forgiven, left_out, failed_batch_end, steered =
  unpack(recorded)
attempt, forgiven = tonumber(attempt or 0), tonumber(forgiven or 0)
-- The recorded batch comes first; the entries that the caller wants to drop wait.
if batch and attempt_nonce ~= args.nonce and wanted == 'dropped' then wanted = 'accepted' end
if attempt_nonce ~= args.nonce then
  phase_before = later_phase(phase_before or '', phase or '')
  if steered then
    -- The attempt before may have given these entries to its agent, so they are part of the batch now.
    if batch then batch = in_order(batch .. ',' .. steered) end
    redis.call('HDEL', keys.state, 'steered')
  end
  if not batch then
    local planned = on_stream(args.entry_ids)
    if planned == '' then return result{verdict = 'missing'} end
    batch, left_out = up_to_stop(planned, stop), on_stream(args.left_out)
    -- The turn is stopped, or no message is left that could mention the others.
    if batch ~= planned or batch == left_out then left_out = '' end
    local head = split(batch)[1]
    if wanted ~= 'dropped' and failed_batch_end and batch ~= opening then
      if id_at_most(head, failed_batch_end) then
        batch, left_out, attempt = head, '', attempts_at(keys.outcome .. head)
        -- An entry that arrived between those of the failed batch was not part of any attempt.
        phase_before = attempt > 0 and 'output' or ''
      else
        redis.call('HDEL', keys.state, 'failed_batch_end')
        redis.call('UNLINK', 'rc:spawned:' .. string.match(keys.state, '{.-}'))
      end
    end
    local has_begun = attempt > 0  -- as an entry of a failed batch
    if not has_begun and batch ~= opening and not is_stopped(keys.state, split(batch)[1]) then
      reached, budgets = check_budgets(keys, args)
      if reached then return result{verdict = 'over', reached = reached, budgets = budgets} end
    end
    if args.refused[1] then
      redis.call('HSET', keys.state, 'refusal', notice_of(args.refused))
      redis.call('HDEL', keys.state, 'budget_told')
    end
  elseif attempt - forgiven >= 2 and phase_before ~= 'dropped' and string.find(batch, ',') then
    local ids = split(batch)
    redis.call('HSET', keys.state, 'failed_batch_end', ids[#ids])
    -- The mentioned entries are dropped first, as they would have been with the batch.
    if left_out ~= '' then batch, phase_before = left_out, 'dropped' else batch = ids[1] end
    left_out = ''
  end
  attempt = attempt + 1
  -- An attempt that was cut off or postponed has left its usage.
  redis.call('HSET', keys.state, 'spent', summed(unpack(redis.call('HMGET', keys.state, 'spent', 'spent_now'))))
  redis.call('HDEL', keys.state, 'spent_now')
end
local entries = {}
for _, id in ipairs(split(batch)) do
  entries[#entries + 1] = entries_of(keys.inbound, id, id)[1]
end
if not entries[1] then  -- withdrawn, or removed by an operator's own XDEL or DEL
  forget_turn(keys.state)
  return result{verdict = 'missing'}
end
local turn = entries[1][1]
if attempt_nonce ~= args.nonce then
  -- The agent of an attempt that was cut off may still run. Without the grant it can't call tools; a new grant names the
  -- new agent. The agent of a postponed attempt continues in this one, and keeps its grant.
  local was_postponed = redis.call('HGET', keys.state, 'postponed_reason')
  local is_resumed = was_postponed and was_postponed ~= 'budget'  -- for a budget, nothing had begun
  redis.call('HDEL', keys.state, 'postponed_reason', 'budgets', 'budget_name')
  if attempt > 1 and wanted ~= 'spawned' and not is_resumed then redis.call('HDEL', keys.state, 'grant') end
  redis.call('HSET', keys.state, 'is_resumed', is_resumed and 1 or 0)
  local now = now_ms()
  redis.call('HSETNX', keys.state, 'busy_since_ms', now)
  if attempt == 1 then  -- later attempts work in the same project
    local project = redis.call('HGET', keys.state, 'project')
    if project then
      redis.call('HSET', keys.state, 'turn_project', project)
    else
      redis.call('HDEL', keys.state, 'turn_project')
    end
  end
  redis.call('HSET', keys.state, 'batch', batch, 'turn', turn, 'attempt', attempt, 'phase', wanted,
    'attempt_nonce', args.nonce, 'phase_before', phase_before, 'published_count', 0, 'left_out', left_out)
  for _, entry in ipairs(entries) do
    local outcome = keys.outcome .. entry[1]
    redis.call('HSET', outcome, 'status', 'running', 'turn', turn, 'begun.' .. attempt, now)
    if wanted ~= 'accepted' then
      redis.call('HSET', outcome, wanted .. '.' .. attempt, now .. ' ' .. args.detail)
    end
  end
end
announce_sessions()
local verdict = 'running'
local is_dropped = phase_before == 'dropped' or redis.call('HGET', keys.state, 'phase') == 'dropped'
if is_stopped(keys.state, entries[#entries][1]) and (attempt == 1 or not is_dropped) then
  verdict = 'stopped'
elseif is_dropped then
  verdict = 'dropped'
end
local busy_since_ms, queue_settings, is_resumed, tries, last_notice, model, turn_project, is_quiet, spent, refusal =
  unpack(redis.call('HMGET', keys.state, 'busy_since_ms', 'queue_settings', 'is_resumed', 'tries', 'last_notice', 'model',
    'turn_project', 'is_quiet', 'spent', 'refusal'))
local function exists(name) return redis.call('EXISTS', name .. string.match(keys.state, '{.-}')) end
return result{verdict = verdict, turn = turn, attempt = attempt, phase_before = phase_before, entries = entries,
  forgiven_attempts = forgiven, left_out = left_out, busy_since_ms = busy_since_ms, queue_settings = queue_settings,
  is_resumed = is_resumed, tries = tries, last_notice = last_notice, model = model, turn_project = turn_project,
  is_quiet = is_quiet,
  has_tasks = exists('rc:children:'), has_aside_notes = exists('rc:aside-notes:'),
  has_denials = exists('rc:unreported-denials:'), spent = spent, refusal = refusal, reached = reached, budgets = budgets}
