-- Show the answer as far as it has come: the last write wins, and it goes by itself.
-- KEYS state, live; ARGV epoch, text (JSON), keep ms
local fence = fenced(KEYS[1], ARGV[1])
if fence then return fence end
if is_full_for('messages') then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('PUBLISH', KEYS[2], ARGV[2])
return 1
