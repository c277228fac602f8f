-- Remove a dead letter and its files.
-- keys: dead_letters, blobs*
-- args: letter
-- → 1; 0 if it doesn't exist
if redis.call('XDEL', keys.dead_letters, args.letter) == 0 then return 0 end
for _, blob in ipairs(keys.blobs) do redis.call('UNLINK', blob) end
announce_sessions()
return 1
