-- Note a preview that stands in a chat, or that it is gone; the reader of the account's replies alone does.
-- keys: reader, previews
-- args: token, name, preview?
local token = redis.call('GET', keys.reader)
if token and token ~= args.token then
  return redis.error_reply('FENCED another adapter reads this stream')
end
if args.preview then
  redis.call('HSET', keys.previews, args.name, args.preview)
else
  redis.call('HDEL', keys.previews, args.name)
end
return 1
