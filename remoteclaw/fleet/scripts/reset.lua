-- End a session's conversation, once for each turn that does so: what is recorded goes into the archive,
-- and what goes on from it is forgotten. Settings of the session stay.
-- uses: replies, asks, sessions
-- keys: state, session_map, record, archive
-- args: epoch, turn, reason, keep_ms, most, sid, stops_tasks, outcomes, outcome_ms, done_channel,
--   copy_name?, copy_of?, map_ms, notes?
-- → when it ended ms
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local done, heard = unpack(redis.call('HMGET', keys.state, 'reset_turn', 'last_heard_ms'))
if done == args.turn then return heard end  -- said before
local now = by_now(keys.state)
if args.stops_tasks == '1' then stop_below(args.sid, true) end
end_above(args.sid, args.stops_tasks == '1')
if args.stops_tasks == '1' then
  redis.call('UNLINK', 'rc:spawned:{' .. args.sid .. '}')
  -- Results that wait are of the conversation that ends: nothing was started in the next one yet.
  for _, entry in ipairs(redis.call('XRANGE', 'rc:in:{' .. args.sid .. '}', '-', '+')) do
    local is_readable, told = pcall(cjson.decode, entry[2][2])
    if is_readable and told.origin == 'result' then
      local outcome = args.outcomes .. entry[1]
      redis.call('XDEL', 'rc:in:{' .. args.sid .. '}', entry[1])
      redis.call('HSET', outcome, 'status', 'stopped', 'finished', now)
      redis.call('PEXPIRE', outcome, args.outcome_ms)
      redis.call('PUBLISH', args.done_channel, entry[1])
    end
  end
end
local keep = tonumber(args.most)
if redis.call('EXISTS', keys.record) == 1 and keep > 0 then
  local name = keys.archive .. ':' .. args.turn
  redis.call('RENAME', keys.record, name)
  redis.call('PEXPIRE', name, args.keep_ms)
  redis.call('LPUSH', keys.archive, args.turn .. ' ' .. now .. ' ' .. args.reason)
  -- Never less than before: what is in the list may be kept for longer.
  if redis.call('PTTL', keys.archive) < tonumber(args.keep_ms) then
    redis.call('PEXPIRE', keys.archive, args.keep_ms)
  end
end
for _, line in ipairs(redis.call('LRANGE', keys.archive, keep, -1)) do
  redis.call('DEL', keys.archive .. ':' .. string.match(line, '^%S+'))
end
redis.call('LTRIM', keys.archive, 0, keep - 1)
if keep == 0 then redis.call('DEL', keys.archive) end
redis.call('DEL', keys.session_map, keys.record)
void_asks(args.sid, nil, 'The conversation has ended.')
redis.call('DEL', 'rc:rules:{' .. args.sid .. '}', 'rc:grants:{' .. args.sid .. '}',
  'rc:unheard:{' .. args.sid .. '}', 'rc:beside:{' .. args.sid .. '}')
if args.copy_name then
  redis.call('HSET', keys.session_map, args.copy_name, args.copy_of)
  redis.call('PEXPIRE', keys.session_map, args.map_ms)
end
if args.notes then redis.call('SET', keys.record, args.notes, 'PX', args.keep_ms) end
-- An agent that is parked somewhere remembers a turn that this session doesn't, so it is never asked.
redis.call('HDEL', keys.state, 'has_remembered', 'agent_process', 'finished_turn', 'grant')
redis.call('HSET', keys.state, 'reset_turn', args.turn, 'reset_reason', args.reason, 'last_heard_ms', now)
redis.call('HSET', args.outcomes .. args.turn, 'reset', now .. ' ' .. args.reason)
return tostring(now)
