-- A host's gateway says where it is. One that starts takes the name from any other; one that goes on
-- takes it only if nobody has it; one that ends gives it back only if it is its own.
-- KEYS gateway; ARGV start|keep|end, address, how long it holds ms
local current = redis.call('GET', KEYS[1])
if ARGV[1] == 'end' then
  if current == ARGV[2] then redis.call('DEL', KEYS[1]) end
elseif ARGV[1] == 'start' or not current or current == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
