-- Note a preview that stands in a chat, or that it is gone; the reader of the account's replies alone does.
-- keys: reader, previews
-- args: token, name, preview?
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
if args.preview then
  redis.call('HSET', keys.previews, args.name, args.preview)
else
  redis.call('HDEL', keys.previews, args.name)
end
return 1
