-- The messages in an account's chats that show their state, each with that state.
-- uses: replies, requests
-- keys: reader, signs
-- args: token
-- row: sign, state
--   sign: as JSON; state: received|works|needs_you|done|failed
--   ended: there is nothing to show; gone: nor a message, because its sender has withdrawn it
local FINAL = {done = 'done', steered = 'done', failed = 'failed', dead = 'failed', dropped = 'failed',
  stopped = 'ended', interrupted = 'ended'}
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end

-- The turns of a session for which a person is asked; '' stands for what waits for a budget.
local function asking_turns(sid)
  local turns = {}
  for _, id in ipairs(requests_of(sid)) do
    local state, turn = unpack(redis.call('HMGET', 'rc:request:' .. id, 'state', 'turn'))
    if state == 'open' then turns[turn] = true end
  end
  return turns
end

-- The state of a session: its turns for which a person is asked, whether a worker has its lease, and whether it waits for
-- a budget.
local sessions = {}
local function session_of(sid)
  if not sessions[sid] then
    local status, until_ms, postponed = unpack(redis.call('HMGET', 'rc:state:{' .. sid .. '}', 'status',
      'lease_until_ms', 'postponed_reason'))
    sessions[sid] = {asking = asking_turns(sid), waits_for_budget = postponed == 'budget',
      runs = status == 'running' and tonumber(until_ms or 0) > now_ms()}
  end
  return sessions[sid]
end

local function state_of(sid, id)
  local beginning = 'rc:outcome:{' .. sid .. '}:'
  local status, turn, reply, moved, withdrawn, undelivered = unpack(redis.call('HMGET', beginning .. id, 'status', 'turn',
    'reply', 'moved', 'withdrawn', 'undelivered'))
  if withdrawn then return 'gone' end
  local final = FINAL[status]
  if final == 'done' and undelivered then return 'failed' end
  if final == 'done' then
    -- A long reply is stored only in the outcome of the turn's first entry.
    reply = reply or turn and redis.call('HGET', beginning .. turn, 'reply')
    return reply and reply ~= '[]' and 'done' or 'ended'
  end
  if final or not status then return final or 'ended' end
  if moved then return state_of(string.match(moved, '(%x+)%-(%d+%-%d+)$')) end
  local session = session_of(sid)
  if turn and session.asking[turn] or session.waits_for_budget and session.asking[''] then return 'needs_you' end
  return status == 'running' and session.runs and 'works' or 'received'
end

local rows = {}
for _, sign in ipairs(redis.call('HVALS', keys.signs)) do
  local entry = cjson.decode(sign)
  rows[#rows + 1] = row{sign = sign, state = state_of(entry.sid, entry.entry_id)}
end
return rows
