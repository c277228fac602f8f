-- Keep a piece of a file's content for a while; 0 if the server is too full for the file.
-- KEYS blob, state if only the lease's owner may
-- ARGV piece, where it begins, how long ms, the part of the server's memory beyond which it is
--      refused, epoch
if #KEYS > 1 then
  local fence = fenced(KEYS[2], ARGV[5])
  if fence then return fence end
end
if ARGV[2] == '0' and memory_used() > tonumber(ARGV[4]) then return 0 end
local left = redis.call('PTTL', KEYS[1])
if ARGV[1] == '' then
  redis.call('SET', KEYS[1], '', 'KEEPTTL')
else
  redis.call('SETRANGE', KEYS[1], ARGV[2], ARGV[1])
end
-- A message may have named it by now, if this piece is a repetition: then it is kept as it is.
if left ~= -1 then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
