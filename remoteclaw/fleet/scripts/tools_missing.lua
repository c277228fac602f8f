-- Note whether the newest agent process has asked for the list of its tools. If not, it can't use them.
-- keys: state
-- args: epoch
-- → 1 if it has not, and the running turn is the first since an agent did that is to report it; else 0
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local turn, grant, listed = unpack(redis.call('HMGET', keys.state, 'turn', 'grant', 'tools_listed'))
if not (turn and grant) then return 0 end
if listed and cjson.decode(grant).digest == listed then
  redis.call('HDEL', keys.state, 'tools_missing')
  return 0
end
redis.call('HSETNX', keys.state, 'tools_missing', turn)
return redis.call('HGET', keys.state, 'tools_missing') == turn and 1 or 0
