-- Put messages on reply streams, with their files, and note them for the conversations of those chats.
-- uses: replies, calls, asides
-- keys: caller?, call, side_effects?, sent?, replies*, blobs*, besides*, states*
-- args: epoch?, turn?, call_ms, note?, note_ms, blob_ms, said?, payloads*
--   besides, states: of sessions that may have such a chat; said: what those that there are shall hear of it
-- → as in the prelude, each "STREAM ID"; incomplete: a file is not there any more
local over = begin_call(keys, args, #args.payloads)
if over then return over end
for _, blob in ipairs(keys.blobs) do
  if redis.call('EXISTS', blob) == 0 then return {'incomplete', ''} end
end
for _, blob in ipairs(keys.blobs) do redis.call('PEXPIRE', blob, args.blob_ms) end
local made = {}
for number, payload in ipairs(args.payloads) do
  -- Two streams give the same id in one script, so an id alone names nothing.
  made[number] = keys.replies[number] .. ' ' .. put_reply(keys.replies[number], payload)
end
for number, beside in ipairs(keys.besides) do
  if args.said and redis.call('EXISTS', keys.states[number]) == 1 then note_beside(beside, args.said) end
end
return end_call(keys, args, unpack(made))
