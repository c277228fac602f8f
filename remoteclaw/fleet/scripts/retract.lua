-- Close a request because the agent no longer waits for its answer.
-- uses: replies, requests
-- keys: state, request
-- args: epoch, turn, request_id, words
--   words: the new text of the messages that show the request
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local state, turn = unpack(redis.call('HMGET', keys.request, 'state', 'turn'))
if args.turn ~= turn then return 0 end
if state == 'open' or state == 'answered' then close_request(args.request_id, 'void', args.words) end
return 1
