-- Throw a dead letter away, and with it the files that came with it; 0 if it is not there.
-- KEYS dead letters, blob …; ARGV letter
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
for position = 2, #KEYS do redis.call('UNLINK', KEYS[position]) end
return 1
