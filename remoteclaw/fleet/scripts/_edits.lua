-- Entries in their newest version. An entry of a stream can't be replaced, so the version of a waiting entry that its
-- sender has edited is in a hash beside the stream, until the entry ends.

local function edits_of(inbound) return 'rc:edits:' .. string.match(inbound, '{.-}') end

-- The entries of a stream from one id to another, oldest first, at most `count`.
local function entries_of(inbound, first, last, count)
  local entries = redis.call('XRANGE', inbound, first, last, 'COUNT', count or 1000000)
  local edits = edits_of(inbound)
  if redis.call('EXISTS', edits) == 1 then
    for _, entry in ipairs(entries) do
      entry[2][2] = redis.call('HGET', edits, entry[1]) or entry[2][2]
    end
  end
  return entries
end

-- Remove an entry that has ended.
local function remove_entry(inbound, id)
  redis.call('HDEL', edits_of(inbound), id)
  return redis.call('XDEL', inbound, id)
end
