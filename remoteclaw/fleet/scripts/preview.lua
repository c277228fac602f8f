-- Record a preview that a chat shows, or remove one. Only the reader of the account's replies may do so.
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
