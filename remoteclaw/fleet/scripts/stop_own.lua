-- Stop what a session does for one person before it does anything for others: the running turn, if it answers nobody
-- else, and the person's waiting entries up to the first one of another person. Sessions below continue.
-- uses: replies, requests, sessions
-- keys: state, inbound, call
-- args: sid, by, sender, keep_ms
-- result: count, queue
--   by: the person, as CHANNEL:ID; sender: the same without the channel
--   count: the number of stopped entries, as the first time for a repeated call; -1 if the session works for others first
--   queue: for the hint that is due, if any
local done = redis.call('GET', keys.call)
if done then return result{count = tonumber(done)} end

-- Whether an entry is only on behalf of the person.
local function is_own(entry)
  local is_readable, data = pcall(cjson.decode, entry[2][2])
  if not is_readable then return false end
  if data.origin == 'chat' then return data.message.from == args.sender end
  local people = data.people or {}
  return #people == 1 and people[1] == args.by
end
local turn = redis.call('HGET', keys.state, 'turn')
local is_of_turn = {}
for _, id in ipairs(taken_up(keys.state)) do is_of_turn[id] = true end
local count, mark, is_whole_turn, is_waiting = 0, nil, true, true
for _, entry in ipairs(redis.call('XRANGE', keys.inbound, '-', '+')) do
  local own = is_own(entry)
  if is_of_turn[entry[1]] then is_whole_turn = is_whole_turn and own and is_waiting end
  is_waiting = is_waiting and own
  if is_waiting then count, mark = count + 1, entry[1] end
  if not is_waiting and count == 0 then is_whole_turn = false end
end
if not is_whole_turn then count = -1 end
redis.call('SET', keys.call, count, 'PX', args.keep_ms)
if count <= 0 then return result{count = count} end
if turn then void_requests(args.sid, turn, 'It was stopped.') end
local is_postponed = redis.call('HEXISTS', keys.state, 'postponed_until_ms') == 1
redis.call('HSET', keys.state, 'stop_entry', mark)
wake(args.sid, keys.state)
redis.call('PUBLISH', 'rc:bell:{' .. args.sid .. '}', '')
return result{count = count, queue = is_postponed and queue_if_scheduled(keys.state)}
