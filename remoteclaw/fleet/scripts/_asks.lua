-- Requests to people: a hash for each, at rc:ask:ID. Needs _replies.
-- open: a turn waits for the answer · answered: nothing has come of it yet · given: the agent has heard it
-- lapsed: no turn waits any more, and it can still be answered · granted: what was asked for passes once ·
-- used: it has · denied: no turn has to hear it · expired · void
-- A change of the configuration has no turn: nothing waits for the answer, and it stays when turns and conversations
-- end. Once it is answered, whoever has that host's file does it.
-- Their keys can't be given to a script: which there are is known inside only.

local ASKS = 'rc:asks'
-- How long a lapsed request can be answered, and how long what was granted then passes, in milliseconds.
local VALID_MS, GRANT_MS = 24 * HOUR_MS, HOUR_MS

-- The requests of a session that could still come to something, and those of its turn; the newest first.
local function asked_of(sid)
  return redis.call('ZREVRANGE', 'rc:asked:{' .. sid .. '}', 0, -1)
end

-- Keep a request, and the file with all of what it is about, as long as a record from now on.
local function keep_ask(ask)
  local keep_ms, file = unpack(redis.call('HMGET', ask, 'keep_ms', 'file'))
  redis.call('PEXPIRE', ask, keep_ms)
  if file then redis.call('PEXPIRE', file, keep_ms) end
end

-- Have the messages that show a request say what became of it, and the conversation if it was asked elsewhere.
local function tell_closed(ask, words)
  local said = string.sub(cjson.encode(words), 2, -2)
  for _, place in ipairs({'', 'here_'}) do
    local stream, closing = unpack(redis.call('HMGET', ask, place .. 'replies', place .. 'closing'))
    if stream then
      local first, last = string.find(closing, '%CLOSING-' .. string.sub(ask, #'rc:ask:' + 1) .. '%', 1, true)
      put_reply(stream, string.sub(closing, 1, first - 1) .. said .. string.sub(closing, last + 1))
    end
  end
end

-- Nothing more can be done about a request; it is kept as long as a record.
local function close_ask(id, state, words)
  local ask = 'rc:ask:' .. id
  redis.call('HSET', ask, 'state', state, 'closed_ms', now_ms())
  redis.call('ZREM', ASKS, id)
  keep_ask(ask)
  if words then tell_closed(ask, words) end
end

-- Make a request that can be answered until then, and the message that shows it. Of a change, turn and attempt are ''.
-- keys: ask, asks, asked, replies?, file?
-- it: id, sid, digest?, rule?, request, keep_ms, card?, closing?
local function open_ask(keys, it, turn, attempt, until_ms)
  local now = now_ms()
  redis.call('HSET', keys.ask, 'state', 'open', 'sid', it.sid, 'turn', turn, 'attempt', attempt, 'digest', it.digest or '',
    'rule', it.rule or '', 'request', it.request, 'asked_ms', now, 'waits_ms', now, 'until_ms', until_ms,
    'keep_ms', it.keep_ms)
  redis.call('ZADD', keys.asks, until_ms, it.id)
  redis.call('ZADD', keys.asked, now, it.id)
  redis.call('PEXPIRE', keys.asked, until_ms - now + VALID_MS + it.keep_ms)
  redis.call('ZREMRANGEBYRANK', keys.asked, 0, -1001)
  if keys.file then
    redis.call('PERSIST', keys.file)
    redis.call('HSET', keys.ask, 'file', keys.file)
  end
  if it.card then
    redis.call('HSET', keys.ask, 'replies', keys.replies, 'closing', it.closing)
    put_reply(keys.replies, it.card)
    if keys.here then  -- another chat shows it
      redis.call('HSET', keys.ask, 'here_replies', keys.here, 'here_closing', it.here_closing, 'unreached', it.unreached)
      put_reply(keys.here, it.told)
    end
  end
  redis.call('PUBLISH', 'rc:asking', it.id)
end

-- Nobody waits for the answer any more, but it is still taken.
local function lapse(id)
  local ask = 'rc:ask:' .. id
  local until_ms = redis.call('HGET', ask, 'asked_ms') + VALID_MS
  redis.call('HSET', ask, 'state', 'lapsed', 'until_ms', until_ms)
  redis.call('ZADD', ASKS, until_ms, id)
end

-- Void what a turn leaves open; without a turn, all of a session that could still come to something, but for changes.
local function void_asks(sid, turn, words)
  for _, id in ipairs(asked_of(sid)) do
    local state, of = unpack(redis.call('HMGET', 'rc:ask:' .. id, 'state', 'turn'))
    local is_waiting = state == 'open' or state == 'answered'
    if turn then is_waiting = is_waiting and of == turn else
      is_waiting = of ~= '' and (is_waiting or state == 'lapsed' or state == 'granted')
    end
    -- An answer of which nothing came is not what the messages may go on to say.
    if is_waiting then close_ask(id, 'void', words) end
  end
end
