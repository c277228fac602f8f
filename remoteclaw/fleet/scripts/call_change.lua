-- Remember that a call changes RemoteClaw itself, before it does; or ask people for that change instead.
-- uses: replies, asks, calls
-- keys: caller?, call, side_effects?, sent?, ask?, asks?, asked?, replies?, file?, here?
-- args: epoch?, turn?, call_ms, note?, note_ms, made, id?, sid?, request?, valid_ms?, keep_ms?, most?, most_of_all?,
--  card?, closing?, told?, here_closing?, unreached?
-- → as in the prelude: `made`; full: so many requests wait
local over = begin_call(keys, args, 1)
if over then return over end
if args.id then
  local open = 0
  for _, id in ipairs(asked_of(args.sid)) do
    if redis.call('HGET', 'rc:ask:' .. id, 'state') == 'open' then open = open + 1 end
  end
  local is_full = open >= tonumber(args.most) or redis.call('ZCARD', keys.asks) >= tonumber(args.most_of_all)
  if is_full then return {'full', ''} end
  open_ask(keys, args, '', '', now_ms() + args.valid_ms)
end
return end_call(keys, args, args.made)
