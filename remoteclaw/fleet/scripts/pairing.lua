-- Request access: store a code that an owner can approve. Each stranger has one code, and few can ask at the same time.
-- keys: pairing
-- args: code, request, valid_ms
--   request: JSON, with provider, account, id and message
-- → the code, also if the same message asks again; else nothing
local MAX_OPEN = 3
local asked, now, open = cjson.decode(args.request), now_ms(), 0
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
  end
end
if open >= MAX_OPEN then return '' end
asked.at_ms = now
redis.call('HSET', keys.pairing, args.code, cjson.encode(asked))
return args.code
