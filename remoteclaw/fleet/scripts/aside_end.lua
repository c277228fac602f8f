-- Record the verdict of an aside and apply it, in one step, so that a verdict is applied once and never asked for again.
-- An entry that has become part of a turn, or was stopped, stays as it is.
-- uses: replies, edits, asides, record, usage
-- keys: state, inbound, replies?, record, aside_notes, usage, usage_day, usage_hour, spent, outcome,
--   outcome_channel, bell
-- args: epoch, turn, entry, verdict, outcome_ms, reply?, note?, record?, record_bytes, record_ms, usage?, agent, sid,
--   root, payers?, usage_ms, zone_offsets, payloads*
-- → the verdict that was applied; gone
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local outcome, now = keys.outcome .. args.entry, now_ms()
local recorded = redis.call('HGET', outcome, 'verdict')
if recorded then return string.match(recorded, ' (.*)') end  -- a repeated call
add_aside_usage(keys, args, outcome)
local turn, attempt, batch, steered, stop = unpack(redis.call('HMGET', keys.state, 'turn', 'attempt', 'batch',
  'steered', 'stop_entry'))
if not is_untouched(keys, args.entry) or id_at_most(args.entry, stop) then return 'gone' end
local runs = turn == args.turn and not id_at_most(turn, stop)
local verdict = args.verdict
-- A turn that is over can neither be joined nor stopped.
if not runs and (verdict == 'work' or verdict == 'stop') then verdict = 'later' end
-- The agent was asked about an earlier version of the message.
if redis.call('HEXISTS', outcome, 'is_edited') == 1 then verdict = 'later' end
redis.call('HSET', outcome, 'verdict', now .. ' ' .. verdict)
announce_sessions()
-- The replies of a verdict that the turn's end has changed belong to that verdict.
if verdict == args.verdict and (runs or verdict ~= 'later') then
  for _, payload in ipairs(args.payloads) do put_reply(keys.replies, payload) end
end
if verdict == 'later' then return verdict end
if args.note then add_note(keys.aside_notes, args.note) end
if verdict == 'work' then
  redis.call('HSET', keys.state, 'steered', (steered and steered .. ',' or '') .. args.entry)
  redis.call('HSET', outcome, 'status', 'running', 'turn', turn, 'steered.' .. attempt, now)
elseif verdict == 'stop' then
  -- Stop only the turn's own entries. Waiting entries, and this one, get their turns after it.
  local ids = split(batch)
  redis.call('HSET', keys.state, 'stop_entry', ids[#ids])
  redis.call('PUBLISH', keys.bell, '')
elseif verdict == 'answered' then
  remove_entry(keys.inbound, args.entry)
  redis.call('HSET', outcome, 'status', 'done', 'finished', now)
  if args.usage then redis.call('HSET', outcome, 'usage', args.usage) end
  if args.reply then redis.call('HSET', outcome, 'reply', args.reply) end
  redis.call('PEXPIRE', outcome, is_full_for('files') and math.min(args.outcome_ms, HOUR_MS) or args.outcome_ms)
  redis.call('PUBLISH', keys.outcome_channel, args.entry)
  if args.record and not is_full_for('messages') then
    append_record(keys.record, args.record, args.record_bytes, args.record_ms)
  end
  redis.call('HSET', keys.state, 'last_heard_ms', entry_clock_ms(keys.state))
end
return verdict
