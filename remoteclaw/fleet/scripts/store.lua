-- Keep a piece of a file's content for a while.
-- keys: blob, stored, state?
-- args: piece, offset, keep_ms, size, most_bytes, epoch?
-- → 1, or 0 if the server is too full for files, or -1 if the chat has stored too much
if keys.state then
  local fence = fenced(keys.state, args.epoch)
  if fence then return fence end
end
if is_full_for('files') then return 0 end
if args.offset == '0' then
  local most = tonumber(args.most_bytes)
  if most > 0 and (tonumber(redis.call('GET', keys.stored)) or 0) + args.size > most then return -1 end
  redis.call('INCRBY', keys.stored, args.size)
  if redis.call('PTTL', keys.stored) < 0 then redis.call('PEXPIRE', keys.stored, HOUR_MS) end
end
local left = redis.call('PTTL', keys.blob)
if args.piece == '' then
  redis.call('SET', keys.blob, '', 'KEEPTTL')
else
  redis.call('SETRANGE', keys.blob, args.offset, args.piece)
end
-- A message may have named it by now, if this piece is a repetition: then it is kept as it is.
if left ~= -1 then redis.call('PEXPIRE', keys.blob, args.keep_ms) end
return 1
