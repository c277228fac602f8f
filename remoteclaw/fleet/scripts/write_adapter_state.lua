-- Store or remove a value of an account's adapter. This works also while Redis is full for messages.
-- keys: reader, adapter_state
-- args: token, run_id?, name, value?, max_bytes
--   run_id: the server's before the writes that are not settled yet
-- → 1; large: the account's values would exceed max_bytes
local fence = fenced_reader(keys.reader, args.token) or fenced_run(args.run_id)
if fence then return fence end
if not args.value then
  redis.call('HDEL', keys.adapter_state, args.name)
  return 1
end
local before = redis.call('HSTRLEN', keys.adapter_state, args.name)
if #args.value > before and bytes_of(keys.adapter_state) - before + #args.value > tonumber(args.max_bytes) then
  return 'large'
end
redis.call('HSET', keys.adapter_state, args.name, args.value)
return 1
