-- Put a dead letter back on its session's stream: once, however often this is asked.
-- KEYS dead letters, inbound, state, active, sessions, what it became
-- ARGV dead letter, sid, grace ms, outcome prefix, session key, bell, how long that is known ms
-- → entry id, queue if a hint is due, else nothing; or nothing, when it is gone; or full
local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not letter then
  local became = redis.call('GET', KEYS[6])  -- the reply was lost, and it is asked again
  return became and {became, ''} or {}
end
if is_full_for('messages') then return {'full'} end
local fields = {}
for position = 1, #letter[2], 2 do fields[letter[2][position]] = letter[2][position + 1] end
local keys = {inbound = KEYS[2], state = KEYS[3], active = KEYS[4], sessions = KEYS[5]}
local lane = fields.lane or 'agents'
local id, queue = accept(keys, fields.entry, ARGV[2], ARGV[3], ARGV[4], ARGV[5], lane, ARGV[6])
redis.call('XDEL', KEYS[1], ARGV[1])
local spawned, again = unpack(redis.call('HMGET', KEYS[3], 'spawned', 'spawned_again'))
if fields.id == (again or spawned) then redis.call('HSET', KEYS[3], 'spawned_again', id) end
redis.call('SET', KEYS[6], id, 'PX', ARGV[7])
local outcome = ARGV[4] .. fields.id
if redis.call('EXISTS', outcome) == 1 then
  redis.call('HSET', outcome, 'retried', now_ms() .. ' as ' .. id)
end
return {id, queue}
