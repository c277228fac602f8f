-- Store a piece of a file's content for a limited time.
-- keys: blob, chat_stored, state
-- args: piece, offset, keep_ms, size, max_bytes, epoch?
--   size: the size of the file; max_bytes: the maximum that the chat may store within an hour, 0 for none
-- → 1, or 0 if the server is too full for files, or -1 if the chat has stored too much
if args.epoch then
  local fence = fenced(keys.state, args.epoch)
  if fence then return fence end
end
if is_full_for('files') then return 0 end
-- A piece that is sent again, because its reply was lost, finds its blob and is not counted again.
if args.offset == '0' and redis.call('EXISTS', keys.blob) == 0 then
  local max = tonumber(args.max_bytes)
  if max > 0 and (tonumber(redis.call('GET', keys.chat_stored)) or 0) + args.size > max then return -1 end
  redis.call('INCRBY', keys.chat_stored, args.size)
  if redis.call('PTTL', keys.chat_stored) < 0 then redis.call('PEXPIRE', keys.chat_stored, HOUR_MS) end
end
local left_ms = redis.call('PTTL', keys.blob)
if args.piece == '' then
  redis.call('SET', keys.blob, '', 'KEEPTTL')
else
  redis.call('SETRANGE', keys.blob, args.offset, args.piece)
end
-- A blob without an expiry belongs to a message already: this is the repetition of a piece.
if left_ms ~= -1 then redis.call('PEXPIRE', keys.blob, args.keep_ms) end
return 1
