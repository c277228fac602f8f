-- Throw a dead letter away, and with it the files that came with it; 0 if it is not there.
-- keys: dead_letters, blobs*
-- args: letter
if redis.call('XDEL', keys.dead_letters, args.letter) == 0 then return 0 end
for _, blob in ipairs(keys.blobs) do redis.call('UNLINK', blob) end
return 1
