-- Start a session for a task. A process that begins the turn again, and asks for the same, gets the one
-- that the process before has started.
-- uses: entries, sessions, calls
-- keys: caller?, call, side_effects?, sent?, inbound, state, active, sessions, children, labels, spawned
-- args: epoch?, turn?, call_ms, note?, note_ms, sid, entry, grace_ms, outcomes, session_key, lane, parent,
--   most, depth, label?, known_ms, digest, asker
--   digest: what is asked for; asker: by which agent process
-- → as in the prelude: session key, entry id, queue if a hint is due, else nothing
--   full: how many are unfinished; labelled: another session has the label
local answered = answer_call(keys, args)
if answered then return answered end
local refused = count_call(keys, args, 1)
if refused then return refused end
local before = split(redis.call('HGET', keys.spawned, args.digest) or '')
local number = 1 + (tonumber(redis.call('HGET', keys.spawned, args.digest .. args.asker)) or 0)
local function count()
  if not args.epoch then return end
  redis.call('HSET', keys.spawned, args.digest .. args.asker, number)
  redis.call('PEXPIRE', keys.spawned, args.call_ms)
end
local made_before = args.epoch and before[number]
if made_before then
  local sid, id = string.match(made_before, '^(%x+) %S+ (%S+)')
  -- One that was cancelled has no result: it is started again.
  if not id_at_most(id, redis.call('HGET', 'rc:st:{' .. sid .. '}', 'unwanted_entry')) then
    local result = string.gsub(string.match(made_before, ' (.*)'), ' ', '\n')
    count()
    redis.call('SET', keys.call, result, 'PX', args.call_ms)
    return {'again', result}
  end
end
local idle, busy = idle_and_busy(keys.children)
if busy >= tonumber(args.most) then return {'full', tostring(busy)} end
if args.label and name_it(keys.labels, args.label, args.sid, keys.state) then return {'labelled', ''} end
count()
redis.call('HSET', keys.state, 'parent', args.parent, 'depth', args.depth)
-- What an agent has a copy of itself do is done where it works.
local function agent_of(session_key) return string.match(session_key, '^[^/]+') end
if keys.caller and agent_of(args.session_key) == agent_of(args.parent) then
  local project = redis.call('HGET', keys.caller, 'turn_project')
  if project then redis.call('HSET', keys.state, 'project', project) end
end
local id, queue = accept(keys, args)
redis.call('HSET', keys.state, 'task_entry', id)
redis.call('ZADD', keys.children, now_ms(), args.sid)
for position = 1, #idle - 50 do redis.call('ZREM', keys.children, idle[position]) end
redis.call('PEXPIRE', keys.children, args.known_ms)
before[made_before and number or #before + 1] = args.sid .. ' ' .. args.session_key .. ' ' .. id .. ' '
if args.epoch then redis.call('HSET', keys.spawned, args.digest, table.concat(before, ',')) end
return end_call(keys, args, args.session_key, id, queue)
