-- End a session's conversation, once for each turn that asks for it: archive the record, and remove everything from which
-- the conversation could continue. The session's settings stay.
-- uses: replies, requests, sessions
-- keys: state, session_map, record, archive, outcome, outcome_channel, budgets*
-- args: epoch, turn, reason, keep_ms, max_archived, sid, stops_tasks, outcome_ms, copy_name?, copy_of?, map_ms, notes?
--   budgets: those of the conversation and its tasks
--   copy_name, copy_of: the next conversation's name in the session map, and the marked id that it copies; notes: the
--   record that it begins with
-- → when the conversation ended ms
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local done, ended_ms = unpack(redis.call('HMGET', keys.state, 'reset_turn', 'last_heard_ms'))
if done == args.turn then return ended_ms end  -- a repeated call
local now = entry_clock_ms(keys.state)
if args.stops_tasks == '1' then stop_below(args.sid, true) end
mark_end_above(args.sid, args.stops_tasks == '1')
if args.stops_tasks == '1' then
  redis.call('UNLINK', 'rc:spawned:{' .. args.sid .. '}')
  -- All results that wait belong to the ended conversation, because the next one has not started any task yet.
  for _, entry in ipairs(redis.call('XRANGE', 'rc:inbound:{' .. args.sid .. '}', '-', '+')) do
    local is_readable, data = pcall(cjson.decode, entry[2][2])
    if is_readable and data.origin == 'result' then
      local outcome = keys.outcome .. entry[1]
      redis.call('XDEL', 'rc:inbound:{' .. args.sid .. '}', entry[1])
      redis.call('HSET', outcome, 'status', 'stopped', 'finished', now)
      redis.call('PEXPIRE', outcome, args.outcome_ms)
      redis.call('PUBLISH', keys.outcome_channel, entry[1])
    end
  end
end
local max = tonumber(args.max_archived)
if redis.call('EXISTS', keys.record) == 1 and max > 0 then
  local name = keys.archive .. ':' .. args.turn
  redis.call('RENAME', keys.record, name)
  redis.call('PEXPIRE', name, args.keep_ms)
  redis.call('LPUSH', keys.archive, args.turn .. ' ' .. now .. ' ' .. args.reason)
  -- Never shorten the expiry: older conversations in the list may be kept for longer.
  if redis.call('PTTL', keys.archive) < tonumber(args.keep_ms) then
    redis.call('PEXPIRE', keys.archive, args.keep_ms)
  end
end
for _, line in ipairs(redis.call('LRANGE', keys.archive, max, -1)) do
  redis.call('DEL', keys.archive .. ':' .. string.match(line, '^%S+'))
end
redis.call('LTRIM', keys.archive, 0, max - 1)
if max == 0 then redis.call('DEL', keys.archive) end
redis.call('DEL', keys.session_map, keys.record)
void_requests(args.sid, nil, 'The conversation has ended.')
for _, budget in ipairs(keys.budgets) do
  local asked = redis.call('HGET', budget, 'request')
  if asked then close_request(asked, 'void', 'The conversation has ended.') end
  redis.call('UNLINK', budget)
end
redis.call('DEL', 'rc:rules:{' .. args.sid .. '}', 'rc:grants:{' .. args.sid .. '}',
  'rc:unreported-denials:{' .. args.sid .. '}', 'rc:aside-notes:{' .. args.sid .. '}')
if args.copy_name then
  redis.call('HSET', keys.session_map, args.copy_name, args.copy_of)
  redis.call('PEXPIRE', keys.session_map, args.map_ms)
end
if args.notes then redis.call('SET', keys.record, args.notes, 'PX', args.keep_ms) end
-- A parked agent remembers the ended conversation, so the session must not use it again.
redis.call('HDEL', keys.state, 'has_remembered', 'agent_process', 'finished_turn', 'grant', 'context',
  'has_untold_summary', 'tree ' .. args.sid)
redis.call('HSET', keys.state, 'reset_turn', args.turn, 'reset_reason', args.reason, 'last_heard_ms', now)
redis.call('HSET', keys.outcome .. args.turn, 'reset', now .. ' ' .. args.reason)
return tostring(now)
