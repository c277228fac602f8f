-- Grant access to the person or group that a pairing code stands for.
-- keys: pairing, paired
-- args: code, by, valid_ms
-- → the request as JSON, also if it was approved before; nothing if the code is unknown or has expired
local known = redis.call('HGET', keys.pairing, args.code)
if not known then return '' end
local request = cjson.decode(known)
if request.at_ms + args.valid_ms <= now_ms() then return '' end
if not request.by then
  request.by = args.by
  redis.call('HSET', keys.pairing, args.code, cjson.encode(request))
  redis.call('HSET', keys.paired, table.concat({request.provider, request.account, request.id}, '\n'), cjson.encode(
    {name = request.name, by = args.by, at_ms = now_ms()}))
end
return cjson.encode(request)
