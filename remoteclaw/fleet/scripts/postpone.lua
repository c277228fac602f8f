-- Give the lease back until a time: nothing was said or done in this attempt, and its batch is begun again
-- then. The host, and with it the agent that waits there, stay the session's.
-- KEYS state, active, inbound, reply stream, what is known of its login's limit (perhaps)
-- ARGV epoch, sid, newest entry that the caller knows, until when ms, why, tries so far,
--      what the person was told, outcome prefix, done channel, detail (for people),
--      what the chat is told now, and what it is told when a person writes meanwhile (JSON, or nothing)
-- → postponed|stopped|news: another entry came, about which the caller has to think first
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
local state, batch, steered, attempt, stop =
  unpack(redis.call('HMGET', KEYS[1], 'state', 'batch', 'steered', 'attempt', 'stop'))
if state ~= 'running' then return 'postponed' end  -- said before
local ids = split(batch)
if id_at_most(ids[#ids], stop) then return 'stopped' end
local newest = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
if newest and not id_at_most(newest[1], ARGV[3]) then return 'news' end
local now, until_ms = now_ms(), tonumber(ARGV[4])
redis.call('HSET', KEYS[1], 'state', 'scheduled', 'not_before', ARGV[4], 'postponed', ARGV[5],
  'tries', ARGV[6], 'told', ARGV[7], 'phase', 'postponed')
redis.call('HDEL', KEYS[1], 'nonce', 'expires', 'worker', 'login')
redis.call('HINCRBY', KEYS[1], 'forgiven', 1)
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[2])
if KEYS[5] and until_ms > now then
  redis.call('HSET', KEYS[1], 'login', KEYS[5])
  redis.call('SET', KEYS[5], ARGV[4], 'PX', until_ms - now)
end
for _, id in ipairs(split(batch .. ',' .. (steered or ''))) do
  local outcome = ARGV[8] .. id
  redis.call('HSET', outcome, 'status', 'accepted', 'postponed.' .. attempt, now .. ' ' .. ARGV[10])
  redis.call('PUBLISH', ARGV[9], id)
end
if ARGV[11] ~= '' then put_reply(KEYS[4], ARGV[11]) end
if ARGV[12] ~= '' then redis.call('HSET', KEYS[1], 'later', KEYS[4] .. '\n' .. ARGV[12]) end
return 'postponed'
