-- Replies on their streams.

-- What no adapter reads is kept for three days, and 32 MB of it: a platform that is
-- connected later gets no answers to what was asked weeks ago, and the rest of the server keeps its memory.
-- An adapter that was there within the hour is only being started again: nothing of its is given up.
local UNREAD_MS = 3 * 24 * 3600 * 1000
local MAX_UNREAD_BYTES = 32 * 1024 * 1024
local AWAY_MS = HOUR_MS

-- Whether no adapter has read for an account, named as in the set of readers, for an hour.
local function is_unread(account)
  local claimed = redis.call('ZSCORE', 'rc:readers', account)
  return not claimed or now_ms() - claimed > AWAY_MS
end

-- Take a reply from a stream, with its files; the entries that it answers tell why.
local function give_up(stream, id, payload, why)
  redis.call('XDEL', stream, id)
  local is_readable, reply = pcall(cjson.decode, payload)
  if not is_readable or type(reply) ~= 'table' or type(reply.sid) ~= 'string' then return end
  local files = reply.card and {} or reply.attachments or {}  -- a request keeps its own
  for _, file in ipairs(files) do
    redis.call('UNLINK', 'rc:blob:{' .. reply.sid .. '}:' .. file.blob)
  end
  for _, entry in ipairs(reply.entries or {}) do
    local outcome = 'rc:oc:{' .. reply.sid .. '}:' .. entry
    if redis.call('EXISTS', outcome) == 1 then
      redis.call('HSETNX', outcome, 'undelivered', now_ms() .. ' ' .. why)
    end
  end
end

-- Take from a stream that no adapter reads what is too old, or too much; the entries that it answers tell so.
-- most: how many replies are looked at, from the oldest on
local function give_up_unread(stream, most)
  local bytes = bytes_of(stream)
  for _ = 1, most do
    local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    if not oldest then return end
    local age = now_ms() - tonumber(string.match(oldest[1], '^%d+'))
    if age <= UNREAD_MS and bytes <= MAX_UNREAD_BYTES then return end
    give_up(stream, oldest[1], oldest[2][2], 'no adapter has read it')
    bytes = bytes - #oldest[2][2]
  end
end

-- Put a reply on its stream. → its id there
local function put_reply(stream, payload)
  local id = redis.call('XADD', stream, '*', 'reply', payload)
  local provider, account = string.match(stream, '^rc:out:(.-):(.*)$')
  if is_unread(provider .. '\0' .. account) then give_up_unread(stream, 8) end
  return id
end
