-- Record that the agent is about to be asked about an entry during the running turn. Each attempt at the turn asks once,
-- and at most two attempts do: an entry that has cost two workers their lives waits for a turn of its own.
-- uses: edits, asides
-- keys: state, inbound, outcome
-- args: epoch, turn, entry
-- → the entry if the agent is to be asked, else nothing
local MAX_TRIES = 2
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
local turn, attempt, stop = unpack(redis.call('HMGET', keys.state, 'turn', 'attempt', 'stop_entry'))
if turn ~= args.turn or not is_untouched(keys, args.entry) or id_at_most(args.entry, stop) then return nil end
local outcome, field = keys.outcome .. args.entry, 'aside.' .. attempt
if redis.call('HEXISTS', outcome, 'verdict') == 1 then return nil end
local entry = entries_of(keys.inbound, args.entry, args.entry)[1]
redis.call('HDEL', outcome, 'is_edited')
if redis.call('HEXISTS', outcome, field) == 1 then return entry end  -- a repeated call
local tries = 0
for _, name in ipairs(redis.call('HKEYS', outcome)) do
  if string.match(name, '^aside%.') then tries = tries + 1 end
end
if tries >= MAX_TRIES then return nil end
redis.call('HSET', outcome, field, now_ms())
return entry
