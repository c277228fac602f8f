-- End the turn: store its outcome, put its last messages on the reply stream, and remove its entries, in one step.
-- uses: replies, requests, entries, sessions, edits, record, asides, work, usage, metrics, budgets
-- keys: state, session_map, inbound, replies, dead_letters, record, side_effects, result_inbound?, result_state?, active,
--   sessions, usage, usage_day, usage_hour, spent, metrics, failed_turns, live, aside_notes, live_of?, home_record?,
--   home_aside_notes?, outcome, outcome_channel, result_outcome?, home_outcome?, home_outcome_channel?, queues*, blobs*,
--   spent_in*, budgets*
-- args: epoch, turn, attempt, status, outcome_ms, reply?, error?, agent_process?, sid, first_index, steered, answered,
--   record?, record_bytes, record_ms?, result?, result_sid?, grace_ms, result_key?, is_about_person, usage?, agent,
--   root, payers?, usage_ms, zone_offsets, buckets, last_note?, above?, hint?, home_entry?, home_note?, limits?, conversations?,
--   told_fallback?, has_untold_summary, payloads*
-- result: left, hints, now_ms, queue_settings, result_queue, budgets
--   result: the entry with the task's result, for the session that has started the task
--   last_note: the last note that the agent has received with this turn; conversations: the session map's, as they are
--   after this turn; told_fallback: the fallback of which the chat knows that it answers, '-' for none
--   home_entry: the entry of a person's message that was moved here, in the session from which it was moved; home_note:
--   the note for that session
--   left: the number of entries; hints: the number of hints that wait; queue_settings: the session's own; result_queue:
--   for the hint that is due for the session that gets the result, if any

-- A reply up to this size, in bytes, is stored in the outcome of each entry. A longer reply is stored only in the outcome
-- of the first entry, which the other outcomes name as their turn.
local MAX_REPEATED = 64 * 1024
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local running = redis.call('HMGET', keys.state, 'turn', 'batch', 'published_count', 'finished_turn', 'left_out',
  'steered', 'lane', 'queue_settings')
local turn, batch, published, finished, left_out, steered, lane, queue = unpack(running)
local waiting, now = 0, now_ms()
-- While memory is short, outcomes expire sooner, and then nothing is added to the record.
local keep_ms = is_full_for('files') and math.min(args.outcome_ms, HOUR_MS) or args.outcome_ms
if is_full_for('messages') then args.record = nil end
for _, each in ipairs(keys.queues) do waiting = waiting + redis.call('LLEN', each) end
if turn ~= args.turn then
  if finished == args.turn then  -- a repeated call
    return result{left = redis.call('XLEN', keys.inbound), hints = waiting, now_ms = now, queue_settings = queue}
  end
  return redis.error_reply('FENCED turn ' .. args.turn .. ' is not running')
end
local status = {}
for _, id in ipairs(split(batch)) do status[id] = args.status end
for _, id in ipairs(split(left_out or '')) do status[id] = 'dropped' end
local ending, answered = split(batch), {}
for _, id in ipairs(split(args.answered)) do
  answered[id] = true
  if status[id] == args.status then status[id] = 'done' end
end
for _, id in ipairs(split(args.steered)) do
  ending[#ending + 1] = id
  status[id] = (answered[id] or args.status == 'done') and 'steered' or args.status
end
-- Entries that were to join this turn, but that the agent has not taken up, wait again.
for _, id in ipairs(split(steered or '')) do
  if not status[id] then
    redis.call('HSET', keys.outcome .. id, 'status', 'accepted')
    redis.call('HDEL', keys.outcome .. id, 'turn', 'steered.' .. args.attempt)
  end
end
-- Store the outcome of the entry `id`, and announce it on a channel as `announced_id`.
local function end_outcome(outcome, id, channel, announced_id)
  redis.call('HSET', outcome, 'status', status[id], 'finished', now)
  if args.reply and (id == turn or #args.reply <= MAX_REPEATED) then
    redis.call('HSET', outcome, 'reply', args.reply)
  end
  if args.error and not answered[id] then redis.call('HSET', outcome, 'error', args.error) end
  if args.usage then redis.call('HSET', outcome, 'usage', args.usage) end
  redis.call('PEXPIRE', outcome, keep_ms)
  redis.call('PUBLISH', channel, announced_id)
end
for _, id in ipairs(ending) do
  local outcome = keys.outcome .. id
  if status[id] == 'dead' then
    local entry = entries_of(keys.inbound, id, id)[1]
    if entry then
      redis.call('XADD', keys.dead_letters, '*', 'sid', args.sid, 'key', redis.call('HGET', keys.state, 'key'),
        'id', id, 'attempts', args.attempt, 'error', args.error or '', 'lane', lane or 'agents', 'entry', entry[2][2])
    end
  end
  remove_entry(keys.inbound, id)
  end_outcome(outcome, id, keys.outcome_channel, id)
end
if args.home_entry then
  end_outcome(keys.home_outcome .. args.home_entry, turn, keys.home_outcome_channel, args.home_entry)
end
-- Whether the task's result is known: no session below it is unfinished, no result of one waits to be read, and the task
-- was not cancelled.
local function is_over()
  for _, child in ipairs(redis.call('ZRANGE', 'rc:children:{' .. args.sid .. '}', 0, -1)) do
    if is_unfinished(child) then return false end
  end
  for _, entry in ipairs(redis.call('XRANGE', keys.inbound, '-', '+')) do
    local is_readable, data = pcall(cjson.decode, entry[2][2])
    if is_readable and data.deliver == 'parent' then return false end
  end
  return not id_at_most(turn, redis.call('HGET', keys.state, 'unwanted_entry'))
end
local result_queue
if args.result and is_over() then
  local _
  _, result_queue = accept(
    {inbound = keys.result_inbound, state = keys.result_state, active = keys.active, sessions = keys.sessions,
      outcome = keys.result_outcome},
    {entry = args.result, sid = args.result_sid, grace_ms = args.grace_ms, session_key = args.result_key,
      lane = 'background'})
  redis.call('HSET', keys.state, 'reported_entry', redis.call('HGET', keys.state, 'task_entry') or turn)
  redis.call('HDEL', keys.state, 'unreported')
elseif args.result and redis.call('HEXISTS', keys.state, 'last_task_entry') == 1 then
  -- The task has a message that waits: this turn's answer becomes part of the later result.
  local before = redis.call('HGET', keys.state, 'unreported')
  redis.call('HSET', keys.state, 'unreported', before and before .. ',' .. turn or turn)
end
local first = tonumber(args.first_index)
for position, payload in ipairs(args.payloads) do
  if first + position > tonumber(published) then put_reply(keys.replies, payload) end
end
-- A dead letter keeps its files, because it may be retried.
if args.status ~= 'dead' then
  for _, blob in ipairs(keys.blobs) do redis.call('UNLINK', blob) end
end
if args.record_ms == '0' then redis.call('DEL', keys.record) end
if args.record then append_record(keys.record, args.record, args.record_bytes, args.record_ms) end
local index = args.last_note and redis.call('LPOS', keys.aside_notes, args.last_note)
if index then redis.call('LTRIM', keys.aside_notes, index + 1, -1) end
-- The conversation from which the message was moved gets the answer as well, unless it has ended.
if args.home_entry and redis.call('HEXISTS', keys.state, 'ended_above') == 0 then
  if args.record then append_record(keys.home_record, args.record, args.record_bytes, args.record_ms) end
  if args.home_note then add_note(keys.home_aside_notes, args.home_note) end
end
redis.call('DEL', keys.side_effects, keys.live)
void_requests(args.sid, turn, 'The turn is over, and it was not done.')
local counted = {}
local category = args.error and cjson.decode(args.error).category or ''
counted['turns/' .. args.agent .. '/' .. args.status .. '/' .. category] = 1
if args.usage then  -- the agent was asked
  add_turn_usage(keys, args, args.usage)
  local begun_ms, first_text = unpack(redis.call('HMGET', keys.outcome .. turn, 'begun.1', 'output.' .. args.attempt))
  begun_ms = tonumber(begun_ms)
  if begun_ms then
    local waited_ms = begun_ms - tonumber(string.match(turn, '^%d+'))
    note_wait(keys, args, waited_ms)
    observe(counted, 'wait/' .. args.agent, waited_ms, args.buckets)
    observe(counted, 'duration/' .. args.agent, now - begun_ms, args.buckets)
    local first_ms = tonumber(string.match(first_text or '', '^%d+'))
    if first_ms then observe(counted, 'first_text/' .. args.agent, first_ms - begun_ms, args.buckets) end
  end
end
add_metrics(keys.metrics, counted)
if args.status == 'failed' or args.status == 'dead' then
  local host = redis.call('HGET', keys.state, 'host')
  note_failure(keys, {'agent', args.agent, 'category', category, 'sid', args.sid, 'turn', turn, 'host', host or ''})
end
forget_turn(keys.state)
redis.call('HSET', keys.state, 'finished_turn', turn)
for name, conversation in pairs(args.conversations and cjson.decode(args.conversations) or {}) do
  if redis.call('HEXISTS', keys.session_map, name) == 1 then redis.call('HSET', keys.session_map, name, conversation) end
end
if args.told_fallback == '-' then
  redis.call('HDEL', keys.state, 'told_fallback', 'fallback')
elseif args.told_fallback then
  redis.call('HSET', keys.state, 'told_fallback', args.told_fallback)
end
if args.has_untold_summary == '1' then
  redis.call('HSET', keys.state, 'has_untold_summary', 1)
else
  redis.call('HDEL', keys.state, 'has_untold_summary')
end
-- Entries of a failed batch, which get one turn each, count as one turn for repeated requests to start tasks.
if redis.call('HEXISTS', keys.state, 'failed_batch_end') == 0 then
  redis.call('UNLINK', 'rc:spawned:{' .. args.sid .. '}')
end
if args.is_about_person == '1' then redis.call('HSET', keys.state, 'last_heard_ms', entry_clock_ms(keys.state)) end
announce_work(args.above, keys.live_of, args.hint)
announce_sessions()
if args.agent_process then
  redis.call('HSET', keys.state, 'agent_process', args.agent_process)
else
  redis.call('HDEL', keys.state, 'agent_process')
end
local _, budgets = check_budgets(keys, args)
return result{left = redis.call('XLEN', keys.inbound), hints = waiting, now_ms = now, queue_settings = queue,
  result_queue = result_queue, budgets = budgets}
