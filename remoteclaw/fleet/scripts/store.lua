-- Keep a piece of a file's content for a while.
-- KEYS blob, what the chat has stored within the hour, state if only the lease's owner may
-- ARGV piece, where it begins, how long ms, size of the file, how many bytes a chat may store within an
--      hour (0: any number), epoch
-- → 1, or 0 if the server is too full for files, or -1 if the chat has stored too much
if #KEYS > 2 then
  local fence = fenced(KEYS[3], ARGV[6])
  if fence then return fence end
end
if is_full_for('files') then return 0 end
if ARGV[2] == '0' then
  local most = tonumber(ARGV[5])
  if most > 0 and (tonumber(redis.call('GET', KEYS[2])) or 0) + ARGV[4] > most then return -1 end
  redis.call('INCRBY', KEYS[2], ARGV[4])
  if redis.call('PTTL', KEYS[2]) < 0 then redis.call('PEXPIRE', KEYS[2], HOUR_MS) end
end
local left = redis.call('PTTL', KEYS[1])
if ARGV[1] == '' then
  redis.call('SET', KEYS[1], '', 'KEEPTTL')
else
  redis.call('SETRANGE', KEYS[1], ARGV[2], ARGV[1])
end
-- A message may have named it by now, if this piece is a repetition: then it is kept as it is.
if left ~= -1 then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
