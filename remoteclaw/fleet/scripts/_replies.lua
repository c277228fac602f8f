-- Replies on their streams.

-- Replies that no adapter reads are kept for three days, up to 32 MB: a platform that is connected later gets no answers
-- to questions from weeks ago, and the rest of the server keeps its memory. An account that had an adapter within the
-- hour counts as read, because its process may only be restarting.
local UNREAD_MS = 3 * 24 * 3600 * 1000
local MAX_UNREAD_BYTES = 32 * 1024 * 1024
local AWAY_MS = HOUR_MS

-- Whether no adapter has read for an account for an hour. `account` is its name in the set of readers.
local function is_unread(account)
  local claimed = redis.call('ZSCORE', 'rc:readers', account)
  return not claimed or now_ms() - claimed > AWAY_MS
end

-- Remove a reply and its files from its stream; note the reason in the outcomes of the entries that it answers.
local function abandon_reply(stream, id, payload, why)
  redis.call('XDEL', stream, id)
  local is_readable, reply = pcall(cjson.decode, payload)
  if not is_readable or type(reply) ~= 'table' or type(reply.sid) ~= 'string' then return end
  local files = reply.card and {} or reply.attachments or {}  -- the files of a card belong to its request
  for _, file in ipairs(files) do
    redis.call('UNLINK', 'rc:blob:{' .. reply.sid .. '}:' .. file.blob)
  end
  for _, entry in ipairs(reply.entries or {}) do
    local outcome = 'rc:outcome:{' .. reply.sid .. '}:' .. entry
    if redis.call('EXISTS', outcome) == 1 then
      redis.call('HSETNX', outcome, 'undelivered', now_ms() .. ' ' .. why)
    end
  end
end

-- Remove the replies beyond the limits from a stream that no adapter reads; check at most `max_count`, oldest first.
local function abandon_unread(stream, max_count)
  local bytes = bytes_of(stream)
  for _ = 1, max_count do
    local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    if not oldest then return end
    local age_ms = now_ms() - tonumber(string.match(oldest[1], '^%d+'))
    if age_ms <= UNREAD_MS and bytes <= MAX_UNREAD_BYTES then return end
    abandon_reply(stream, oldest[1], oldest[2][2], 'no adapter has read it')
    bytes = bytes - #oldest[2][2]
  end
end

-- Put a reply on its stream. → its id on the stream
local function put_reply(stream, payload)
  local id = redis.call('XADD', stream, '*', 'reply', payload)
  local provider, account = string.match(stream, '^rc:replies:(.-):(.*)$')
  if is_unread(provider .. '\0' .. account) then abandon_unread(stream, 8) end
  return id
end
