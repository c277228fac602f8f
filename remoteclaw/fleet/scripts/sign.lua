-- Note that a message in a chat shows its state, or with a token that it does no longer.
-- keys: reader, signs
-- args: token?, name, sign?, max_signs?
--   sign: as JSON; nothing to remove it, which only the reader of the account's replies may do
-- → 1; 0 if it was so before, or if too many messages show theirs
if args.sign then
  if redis.call('HLEN', keys.signs) >= tonumber(args.max_signs) then return 0 end
  return redis.call('HSETNX', keys.signs, args.name, args.sign)
end
local fence = fenced_reader(keys.reader, args.token)
if fence then return fence end
return redis.call('HDEL', keys.signs, args.name)
