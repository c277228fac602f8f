-- Request access: store a code that an owner can approve. Each stranger has one code. If an account has too many requests,
-- a new one takes the place of the oldest, once that is `kept_ms` old.
-- keys: pairing
-- args: code, request, valid_ms, most, kept_ms
--   request: JSON, with provider, account, id and message
-- → the code, also if the same message asks again; else nothing
local asked, now, open = cjson.decode(args.request), now_ms(), 0
local oldest, oldest_ms
local known = redis.call('HGETALL', keys.pairing)
for number = 1, #known, 2 do
  local code, request = known[number], cjson.decode(known[number + 1])
  if request.at_ms + args.valid_ms <= now then
    redis.call('HDEL', keys.pairing, code)
  elseif not request.by and request.provider == asked.provider and request.account == asked.account then
    if request.id == asked.id then
      return request.message == asked.message and code or ''
    end
    open = open + 1
    if not oldest or request.at_ms < oldest_ms then oldest, oldest_ms = code, request.at_ms end
  end
end
if open >= tonumber(args.most) then
  if oldest_ms + args.kept_ms > now then return '' end
  redis.call('HDEL', keys.pairing, oldest)
end
asked.at_ms = now
redis.call('HSET', keys.pairing, args.code, cjson.encode(asked))
return args.code
