-- End a session's conversation, once for each turn that does so: what is recorded goes into the archive,
-- and what goes on from it is forgotten. Settings of the session stay.
-- KEYS state, session map, record, archive
-- ARGV epoch, turn, why, how long ended conversations are kept ms, how many are, outcome of the turn's
--      first entry; sid if all that it has started is to stop, and no result of that is to come (else
--      nothing), prefix of outcomes, how long they are kept ms, done channel
-- → when it ended ms
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local done, heard = unpack(redis.call('HMGET', KEYS[1], 'reset', 'heard'))
if done == ARGV[2] then return heard end  -- said before
local now = by_now(KEYS[1])
if ARGV[7] ~= '' then
  stop_below(ARGV[7])
  redis.call('UNLINK', 'rc:kids:{' .. ARGV[7] .. '}', 'rc:spawned:{' .. ARGV[7] .. '}')
  -- Results that wait are of the conversation that ends: nothing was started in the next one yet.
  for _, entry in ipairs(redis.call('XRANGE', 'rc:in:{' .. ARGV[7] .. '}', '-', '+')) do
    local is_readable, told = pcall(cjson.decode, entry[2][2])
    if is_readable and told.origin == 'result' then
      local outcome = ARGV[8] .. entry[1]
      redis.call('XDEL', 'rc:in:{' .. ARGV[7] .. '}', entry[1])
      redis.call('HSET', outcome, 'status', 'stopped', 'finished', now)
      redis.call('PEXPIRE', outcome, ARGV[9])
      redis.call('PUBLISH', ARGV[10], entry[1])
    end
  end
end
local keep = tonumber(ARGV[5])
if redis.call('EXISTS', KEYS[3]) == 1 and keep > 0 then
  local name = KEYS[4] .. ':' .. ARGV[2]
  redis.call('RENAME', KEYS[3], name)
  redis.call('PEXPIRE', name, ARGV[4])
  redis.call('LPUSH', KEYS[4], ARGV[2] .. ' ' .. now .. ' ' .. ARGV[3])
  -- Never less than before: what is in the list may be kept for longer.
  if redis.call('PTTL', KEYS[4]) < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[4], ARGV[4]) end
end
for _, line in ipairs(redis.call('LRANGE', KEYS[4], keep, -1)) do
  redis.call('DEL', KEYS[4] .. ':' .. string.match(line, '^%S+'))
end
redis.call('LTRIM', KEYS[4], 0, keep - 1)
if keep == 0 then redis.call('DEL', KEYS[4]) end
redis.call('DEL', KEYS[2], KEYS[3])
-- An agent that is parked somewhere remembers a turn that this session doesn't, so nobody asks it.
redis.call('HDEL', KEYS[1], 'remembers', 'agent_process', 'finished', 'tools')
redis.call('HSET', KEYS[1], 'reset', ARGV[2], 'reset_why', ARGV[3], 'heard', now)
redis.call('HSET', ARGV[6], 'reset', now .. ' ' .. ARGV[3])
return tostring(now)
