-- Requests to people: each is a hash at rc:request:ID. Needs _replies.
-- The states:
--   open: a turn waits for the answer · answered: the turn has not taken the answer yet · given: the turn has taken it
--   lapsed: no turn waits any more, but the request can still be answered · granted: it was allowed after its turn, and
--   the same call passes once · used: that call has passed · denied: after its turn · expired · void
-- A request for a change of the configuration has no turn: nothing waits for the answer, and the request outlives turns
-- and conversations. Once it is answered, any process that has the host's file carries it out.
-- The keys of requests can't be given to a script, because only the script knows which requests exist.

-- The field of a permission for the conversation: each is for one person, or for a group of people with a name.
local function rule_of(rule, holder) return rule .. '\n' .. holder end

local REQUESTS = 'rc:requests'
-- A lapsed request can be answered, and a granted one passes, for this time, in milliseconds.
local VALID_MS, GRANT_MS = 24 * HOUR_MS, HOUR_MS

-- The ids of a session's pending requests and of the requests of its turn, newest first.
local function requests_of(sid)
  return redis.call('ZREVRANGE', 'rc:session-requests:{' .. sid .. '}', 0, -1)
end

-- Restart the expiry of a request, and of the file with its complete text.
local function keep_request(request)
  local keep_ms, file = unpack(redis.call('HMGET', request, 'keep_ms', 'file'))
  redis.call('PEXPIRE', request, keep_ms)
  if file then redis.call('PEXPIRE', file, keep_ms) end
end

-- Update the message that shows a request to `text`.
local function show_closed(request, text)
  local escaped = string.sub(cjson.encode(text), 2, -2)
  local stream, closing = unpack(redis.call('HMGET', request, 'replies', 'closing'))
  if stream then
    local first, last = string.find(closing, '%CLOSING-' .. string.sub(request, #'rc:request:' + 1) .. '%', 1, true)
    put_reply(stream, string.sub(closing, 1, first - 1) .. escaped .. string.sub(closing, last + 1))
  end
end

-- Announce that a request has changed, or is new.
local function announce_request(id) redis.call('PUBLISH', 'rc:request-updates', id) end

-- Move a request to a final state; it is kept as long as a record. Without `text`, its messages stay as they are.
local function close_request(id, state, text)
  local request = 'rc:request:' .. id
  redis.call('HSET', request, 'state', state, 'closed_ms', now_ms())
  redis.call('ZREM', REQUESTS, id)
  keep_request(request)
  if text then show_closed(request, text) end
  announce_request(id)
end

-- Make a request that can be answered until `until_ms`, and put the message that shows it on its reply stream.
-- For a change of the configuration, `turn` and `attempt` are ''.
-- keys: request, requests, session_requests, replies?, here?, file?
-- it: request_id, sid, digest?, rule?, request, keep_ms, card?, closing?, shown_elsewhere?, unreached?
local function open_request(keys, it, turn, attempt, until_ms)
  local now = now_ms()
  redis.call('HSET', keys.request, 'state', 'open', 'sid', it.sid, 'turn', turn, 'attempt', attempt,
    'digest', it.digest or '', 'rule', it.rule or '', 'request', it.request, 'asked_ms', now, 'waits_ms', now,
    'until_ms', until_ms, 'keep_ms', it.keep_ms)
  redis.call('ZADD', keys.requests, until_ms, it.request_id)
  redis.call('ZADD', keys.session_requests, now, it.request_id)
  redis.call('PEXPIRE', keys.session_requests, until_ms - now + VALID_MS + it.keep_ms)
  redis.call('ZREMRANGEBYRANK', keys.session_requests, 0, -1001)
  if keys.file then
    redis.call('PERSIST', keys.file)
    redis.call('HSET', keys.request, 'file', keys.file)
  end
  if it.card then
    redis.call('HSET', keys.request, 'replies', keys.replies, 'closing', it.closing)
    put_reply(keys.replies, it.card)
    if keys.here then  -- another chat shows the request
      redis.call('HSET', keys.request, 'here_replies', keys.here, 'shown_elsewhere',
        it.shown_elsewhere or '', 'unreached', it.unreached)
    end
  end
  announce_request(it.request_id)
end

-- End the turn's wait for an answer; the request can still be answered.
local function lapse(id)
  local request = 'rc:request:' .. id
  local until_ms = redis.call('HGET', request, 'asked_ms') + VALID_MS
  redis.call('HSET', request, 'state', 'lapsed', 'until_ms', until_ms)
  redis.call('ZADD', REQUESTS, until_ms, id)
  announce_request(id)
end

-- Void the waiting requests of a turn; without `turn`, all pending requests of the session except changes.
local function void_requests(sid, turn, text)
  for _, id in ipairs(requests_of(sid)) do
    local state, request_turn = unpack(redis.call('HMGET', 'rc:request:' .. id, 'state', 'turn'))
    local is_pending = state == 'open' or state == 'answered'
    if turn then is_pending = is_pending and request_turn == turn else
      is_pending = request_turn ~= '' and (is_pending or state == 'lapsed' or state == 'granted')
    end
    -- An answered request is voided, too: its message shows the answer, which has had no effect.
    if is_pending then close_request(id, 'void', text) end
  end
end
