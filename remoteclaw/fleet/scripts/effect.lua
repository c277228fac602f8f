-- Do what a call asks for, once, and only while the turn that asks for it runs; and note that it was.
-- KEYS caller's state, call, effects of the turn, the rest by kind
--   messages: reply stream …, blob …
--   entry:    inbound, state, active, sessions
--   spawn:    inbound, state, active, sessions, children, labels, what this turn has started
--   job:      jobs, due times
--   change:   times of the last changes, changes that wait to be confirmed
--   run:      jobs, open runs, their looks, inbound, state, active, sessions
--   note:     nothing: only the record says something
--   and behind those: what the chat's turns have sent within the hour
-- ARGV epoch (nothing: no turn asks), turn, how long a call is remembered ms, what the turn's record
--      says of it (JSON, or nothing), how long that is kept ms, kind, the rest by kind
--   messages: number of messages, how long blobs are kept ms, payload …
--   entry:    sid, entry, grace ms, outcome prefix, session key, lane
--   spawn:    the same, then the session that starts it: key and how many unfinished ones it may have;
--             depth, label (nothing: none), how long it is known ms, what is asked for (a digest), and
--             by which agent process
--   job:      id, job as it was (nothing: there was none), job (nothing: there is to be none),
--             when it is due ms (nothing: never), how many jobs there may be
--   change:   how many there may be, within how long ms, what comes of it, id (nothing: it does not
--             wait), the change as it waits, how long ms, how many may wait
--   run:      job's id, job as it was, job, the run's name, the run (JSON), then as for an entry
-- → done|again, what came of it: ids, one a line
--   no room: the server is too full for it; too much: what would have been sent (`sends_too_much`)
--   spawn also: full, how many are unfinished; labelled: another session has the label
--   others also: incomplete|changed|full|taken, nothing; limited, after how long ms one may be made
if ARGV[1] ~= '' then
  local fence = fenced(KEYS[1], ARGV[1])
  if fence then return fence end
  local running = redis.call('HMGET', KEYS[1], 'state', 'turn', 'batch', 'stop')
  local asked = split(running[3] or '')
  if asked[1] and id_at_most(asked[#asked], running[4]) then
    return redis.error_reply('FENCED turn ' .. ARGV[2] .. ' was stopped')
  end
  if running[1] ~= 'running' or running[2] ~= ARGV[2] then
    return redis.error_reply('FENCED turn ' .. ARGV[2] .. ' is not running')
  end
end
local seen = redis.call('GET', KEYS[2])
if seen then return {'again', seen} end
local kind, made, sent = ARGV[6], {}, nil
-- What removes something, or only says what came of a call, makes room or takes none.
if kind ~= 'note' and not (kind == 'job' and ARGV[9] == '') then
  if is_full_for(ARGV[1] ~= '' and 'tools' or 'messages') then return {'no room', ''} end
  if ARGV[1] ~= '' then
    local bytes = #ARGV[4]
    for position = 7, #ARGV do bytes = bytes + #ARGV[position] end
    sent = {messages = kind == 'messages' and ARGV[7] or 1, bytes = bytes}
    local beyond = sends_too_much(KEYS[1], KEYS[#KEYS], sent)
    if beyond then return {'too much', beyond} end
  end
end
if kind == 'messages' then
  local count = tonumber(ARGV[7])
  for position = 4 + count, #KEYS - 1 do
    if redis.call('EXISTS', KEYS[position]) == 0 then return {'incomplete', ''} end
  end
  for position = 4 + count, #KEYS - 1 do redis.call('PEXPIRE', KEYS[position], ARGV[8]) end
  for number = 1, count do
    -- Two streams give the same id in one script, so an id alone names nothing.
    local id = put_reply(KEYS[3 + number], ARGV[8 + number])
    made[number] = KEYS[3 + number] .. ' ' .. id
  end
elseif kind == 'entry' then
  local keys = {inbound = KEYS[4], state = KEYS[5], active = KEYS[6], sessions = KEYS[7]}
  local id, queue = accept(keys, ARGV[8], ARGV[7], ARGV[9], ARGV[10], ARGV[11], ARGV[12], '')
  made = {id, queue}
elseif kind == 'spawn' then
  local keys = {inbound = KEYS[4], state = KEYS[5], active = KEYS[6], sessions = KEYS[7]}
  -- A process that begins the turn anew asks for the same again: it gets what the one before made.
  local before = split(redis.call('HGET', KEYS[10], ARGV[18]) or '')
  local number = 1 + (tonumber(redis.call('HGET', KEYS[10], ARGV[18] .. ARGV[19])) or 0)
  local function count()
    if ARGV[1] == '' then return end
    redis.call('HSET', KEYS[10], ARGV[18] .. ARGV[19], number)
    redis.call('PEXPIRE', KEYS[10], ARGV[3])
  end
  local made_before = ARGV[1] ~= '' and before[number]
  if made_before then
    local sid, id = string.match(made_before, '^(%x+) %S+ (%S+)')
    -- One that was cancelled has no result: it is started again.
    if not id_at_most(id, redis.call('HGET', 'rc:st:{' .. sid .. '}', 'unwanted')) then
      local result = string.gsub(string.match(made_before, ' (.*)'), ' ', '\n')
      count()
      redis.call('SET', KEYS[2], result, 'PX', ARGV[3])
      return {'again', result}
    end
  end
  local idle, busy = {}, 0
  for _, child in ipairs(redis.call('ZRANGE', KEYS[8], 0, -1)) do
    if is_unfinished(child) then busy = busy + 1 else idle[#idle + 1] = child end
  end
  if busy >= tonumber(ARGV[14]) then return {'full', tostring(busy)} end
  if ARGV[16] ~= '' and name_it(KEYS[9], ARGV[16], ARGV[7], KEYS[5]) then return {'labelled', ''} end
  count()
  redis.call('HSET', KEYS[5], 'parent', ARGV[13], 'depth', ARGV[15])
  local id, queue = accept(keys, ARGV[8], ARGV[7], ARGV[9], ARGV[10], ARGV[11], ARGV[12], '')
  redis.call('HSET', KEYS[5], 'spawned', id)
  redis.call('ZADD', KEYS[8], now_ms(), ARGV[7])
  for position = 1, #idle - 50 do redis.call('ZREM', KEYS[8], idle[position]) end
  redis.call('PEXPIRE', KEYS[8], ARGV[17])
  before[made_before and number or #before + 1] = ARGV[7] .. ' ' .. ARGV[11] .. ' ' .. id .. ' '
  if ARGV[1] ~= '' then redis.call('HSET', KEYS[10], ARGV[18], table.concat(before, ',')) end
  made = {ARGV[11], id, queue}
elseif kind == 'run' then
  if redis.call('HGET', KEYS[4], ARGV[7]) ~= ARGV[8] then return {'changed', ''} end
  local keys = {inbound = KEYS[7], state = KEYS[8], active = KEYS[9], sessions = KEYS[10]}
  local id, queue = accept(keys, ARGV[13], ARGV[12], ARGV[14], ARGV[15], ARGV[16], ARGV[17], '')
  redis.call('HSET', KEYS[4], ARGV[7], ARGV[9])
  redis.call('HSET', KEYS[5], ARGV[10], ARGV[15] .. id .. ' ' .. ARGV[11])
  redis.call('ZADD', KEYS[6], now_ms(), ARGV[10])
  made = {id, queue}
elseif kind == 'job' then
  local job = redis.call('HGET', KEYS[4], ARGV[7]) or ''
  if job ~= ARGV[8] then return {'changed', ''} end
  if ARGV[9] == '' then
    redis.call('HDEL', KEYS[4], ARGV[7])
  else
    if job == '' and redis.call('HLEN', KEYS[4]) >= tonumber(ARGV[11]) then return {'full', ''} end
    redis.call('HSET', KEYS[4], ARGV[7], ARGV[9])
  end
  if ARGV[10] == '' then
    redis.call('ZREM', KEYS[5], ARGV[7])
  else
    redis.call('ZADD', KEYS[5], ARGV[10], ARGV[7])
  end
  made = {job == '' and ARGV[9] == '' and '' or ARGV[7]}
elseif kind == 'change' then
  local now, most, within = now_ms(), tonumber(ARGV[7]), tonumber(ARGV[8])
  local first = redis.call('LINDEX', KEYS[4], most - 1)
  local since = first and now - tonumber(first) or within
  if since >= 0 and since < within then return {'limited', string.format('%d', within - since)} end
  if ARGV[10] ~= '' then
    -- What a person was shown under an id is what they confirm with it.
    if redis.call('HEXISTS', KEYS[5], ARGV[10]) == 1 then return {'taken', ''} end
    local waiting, pending = redis.call('HGETALL', KEYS[5]), 0
    for position = 1, #waiting, 2 do
      local is_read, change = pcall(cjson.decode, waiting[position + 1])
      if not is_read or type(change) ~= 'table' or (tonumber(change.expires_ms) or 0) <= now then
        redis.call('HDEL', KEYS[5], waiting[position])
      elseif change.status == 'pending' then
        pending = pending + 1
      end
    end
    if pending >= tonumber(ARGV[13]) then return {'full', ''} end
    redis.call('HSET', KEYS[5], ARGV[10], ARGV[11])
    redis.call('PEXPIRE', KEYS[5], ARGV[12])
  end
  redis.call('LPUSH', KEYS[4], now)
  redis.call('LTRIM', KEYS[4], 0, most - 1)
  redis.call('PEXPIRE', KEYS[4], within)
  made = {ARGV[9]}
end
if sent then count_sent(KEYS[1], KEYS[#KEYS], sent) end
local result = table.concat(made, '\n')
redis.call('SET', KEYS[2], result, 'PX', ARGV[3])
if ARGV[4] ~= '' then
  redis.call('RPUSH', KEYS[3], ARGV[4])
  redis.call('PEXPIRE', KEYS[3], ARGV[5])
end
return {'done', result}
