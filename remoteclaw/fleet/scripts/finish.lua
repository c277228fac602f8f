-- End the turn: its outcome, its last messages and the removal of its entries are one step.
-- KEYS state, inbound, reply stream, dead letters, record, effects of the turn, then of the session that
--      gets the result: inbound, state; active, sessions, usage of agents, usage of the day, live, RQ queue …
-- ARGV epoch, turn, attempt, status, outcome ms, outcome prefix, done channel, reply, error,
--      parked agent (JSON, or nothing), sid, first index, entries that the agent took up,
--      those that were answered before a failure, lines for the record, its size at most, how long
--      it is kept ms (0: no record), prefix of blobs, blobs of those entries, result as an entry
--      (nothing: none is owed), sid that gets it, its grace ms, outcome prefix, session key,
--      1 if a person was heard, what the agent took (numbers, or nothing), agent, how long the sums of
--      a day are kept ms, payload …
-- → entries left, hints that wait, the time, the session's own queue settings, queue if a hint is due
--   for the session that gets the result, else nothing

-- How many bytes of a reply stand in the outcome of each entry: a longer one stands in that of the first
-- alone, which every other one names as its turn.
local MOST_REPEATED = 64 * 1024
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local running = redis.call('HMGET', KEYS[1], 'turn', 'batch', 'published', 'finished', 'mentioned',
  'steered', 'lane', 'queue')
local turn, batch, published, finished, mentioned, steered, lane, queue = unpack(running)
local waiting, now = 0, now_ms()
-- What is kept for those who look at it later goes sooner, or is not kept, where there is little room.
local keep_ms = is_full_for('files') and math.min(ARGV[5], HOUR_MS) or ARGV[5]
if is_full_for('messages') then ARGV[15] = '' end
for position = 14, #KEYS do waiting = waiting + redis.call('LLEN', KEYS[position]) end
if turn ~= ARGV[2] then
  if finished == ARGV[2] then  -- said before
    return {redis.call('XLEN', KEYS[2]), waiting, now, queue or '', ''}
  end
  return redis.error_reply('FENCED turn ' .. ARGV[2] .. ' is not running')
end
local status = {}
for _, id in ipairs(split(batch)) do status[id] = ARGV[4] end
for _, id in ipairs(split(mentioned or '')) do status[id] = 'dropped' end
local ending, answered = split(batch), {}
for _, id in ipairs(split(ARGV[14])) do
  answered[id] = true
  if status[id] == ARGV[4] then status[id] = 'done' end
end
for _, id in ipairs(split(ARGV[13])) do
  ending[#ending + 1] = id
  status[id] = (answered[id] or ARGV[4] == 'done') and 'steered' or ARGV[4]
end
-- What was meant for this turn and did not become a part of it waits again.
for _, id in ipairs(split(steered or '')) do
  if not status[id] then
    redis.call('HSET', ARGV[6] .. id, 'status', 'accepted')
    redis.call('HDEL', ARGV[6] .. id, 'turn', 'steered.' .. ARGV[3])
  end
end
for _, id in ipairs(ending) do
  local outcome = ARGV[6] .. id
  if status[id] == 'dead' then
    local entry = redis.call('XRANGE', KEYS[2], id, id)[1]
    if entry then
      redis.call('XADD', KEYS[4], '*', 'sid', ARGV[11], 'key', key_of(KEYS[1]), 'id', id, 'attempts', ARGV[3],
        'error', ARGV[9], 'lane', lane or 'agents', 'entry', entry[2][2])
    end
  end
  redis.call('XDEL', KEYS[2], id)
  redis.call('HSET', outcome, 'status', status[id], 'finished', now, 'attempts', ARGV[3])
  if ARGV[8] ~= '' and (id == turn or #ARGV[8] <= MOST_REPEATED) then
    redis.call('HSET', outcome, 'reply', ARGV[8])
  end
  if ARGV[9] ~= '' and not answered[id] then redis.call('HSET', outcome, 'error', ARGV[9]) end
  if ARGV[26] ~= '' then redis.call('HSET', outcome, 'usage', ARGV[26]) end
  redis.call('PEXPIRE', outcome, keep_ms)
  redis.call('PUBLISH', ARGV[7], id)
end
-- What a task comes to is known once nothing is left that it has started, or that came back to it.
local function is_over()
  for _, child in ipairs(redis.call('ZRANGE', 'rc:kids:{' .. ARGV[11] .. '}', 0, -1)) do
    if is_unfinished(child) then return false end
  end
  for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '-', '+')) do
    local is_readable, told = pcall(cjson.decode, entry[2][2])
    if is_readable and told.deliver == 'parent' then return false end
  end
  return not id_at_most(turn, redis.call('HGET', KEYS[1], 'unwanted'))
end
local hint = ''
if ARGV[20] ~= '' and is_over() then
  local keys = {inbound = KEYS[7], state = KEYS[8], active = KEYS[9], sessions = KEYS[10]}
  local _, due = accept(keys, ARGV[20], ARGV[21], ARGV[22], ARGV[23], ARGV[24], 'background', '')
  hint = due
end
local first = tonumber(ARGV[12])
for position = 29, #ARGV do
  if first + position - 29 >= tonumber(published) then
    put_reply(KEYS[3], ARGV[position])
  end
end
-- A dead letter keeps its files: it may be retried.
if ARGV[4] ~= 'dead' then
  for _, name in ipairs(split(ARGV[19])) do redis.call('UNLINK', ARGV[18] .. name) end
end
if ARGV[17] == '0' then redis.call('DEL', KEYS[5]) end
if ARGV[15] ~= '' then
  local size, most = redis.call('APPEND', KEYS[5], ARGV[15]), tonumber(ARGV[16])
  if size > most then  -- a quarter goes at once, so that it isn't copied with each turn
    local rest = redis.call('GETRANGE', KEYS[5], -math.floor(most * 0.75), -1)
    redis.call('SET', KEYS[5], string.sub(rest, (string.find(rest, '\n', 1, true) or #rest) + 1))
  end
  redis.call('PEXPIRE', KEYS[5], ARGV[17])
end
redis.call('DEL', KEYS[6], KEYS[13])
-- Numbers are added to those that are kept; more of them than before are those of a newer version.
local function add_usage(key, field)
  local sums = {}
  for number in string.gmatch(redis.call('HGET', key, field) or '', '%d+') do
    sums[#sums + 1] = tonumber(number)
  end
  local position = 0
  for number in string.gmatch(ARGV[26], '%d+') do
    position = position + 1
    sums[position] = (sums[position] or 0) + tonumber(number)
  end
  for each, sum in ipairs(sums) do sums[each] = string.format('%.0f', sum) end
  redis.call('HSET', key, field, table.concat(sums, ' '))
end
if ARGV[26] ~= '' then
  add_usage(KEYS[11], ARGV[27])
  add_usage(KEYS[12], ARGV[27] .. ' ' .. ARGV[11])
  redis.call('PEXPIRE', KEYS[12], ARGV[28])
end
forget_turn(KEYS[1])
redis.call('HSET', KEYS[1], 'finished', turn)
-- Entries that are tried one by one, after failures, go on to be one turn in this respect.
if redis.call('HEXISTS', KEYS[1], 'singly') == 0 then
  redis.call('UNLINK', 'rc:spawned:{' .. ARGV[11] .. '}')
end
if ARGV[25] == '1' then redis.call('HSET', KEYS[1], 'heard', by_now(KEYS[1])) end
if ARGV[10] == '' then
  redis.call('HDEL', KEYS[1], 'agent_process')
else
  redis.call('HSET', KEYS[1], 'agent_process', ARGV[10])
end
return {redis.call('XLEN', KEYS[2]), waiting, now, queue or '', hint}
