-- A host's gateway says where it is. One that starts takes the name from any other; one that goes on
-- takes it only if it is free; one that ends gives it back only if it is its own.
-- keys: gateway
-- args: step, address, holds_ms
local current = redis.call('GET', keys.gateway)
if args.step == 'end' then
  if current == args.address then redis.call('DEL', keys.gateway) end
elseif args.step == 'start' or not current or current == args.address then
  redis.call('SET', keys.gateway, args.address, 'PX', args.holds_ms)
end
return 1
