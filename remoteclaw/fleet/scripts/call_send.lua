-- Put messages on reply streams, keep their files, and add a note to the conversations of the chats that get them.
-- uses: replies, calls, asides
-- keys: caller_state?, call, caller_side_effects?, sent?, replies*, blobs*, aside_notes*, states*
-- args: epoch?, turn?, call_ms, effect?, effect_ms, blob_ms, chat_note?, payloads*
-- result: status, values
--   aside_notes, states: of the sessions that may have such a chat; chat_note: the note for those that exist
--   values: names, each "STREAM ID"; incomplete: a file is no longer stored
local over = begin_call(keys, args, #args.payloads)
if over then return over end
for _, blob in ipairs(keys.blobs) do
  if redis.call('EXISTS', blob) == 0 then return result{status = 'incomplete'} end
end
for _, blob in ipairs(keys.blobs) do redis.call('PEXPIRE', blob, args.blob_ms) end
local names = {}
for number, payload in ipairs(args.payloads) do
  -- Within one script, two streams can assign the same id, so an id alone is not unique.
  names[number] = keys.replies[number] .. ' ' .. put_reply(keys.replies[number], payload)
end
for number, notes in ipairs(keys.aside_notes) do
  if args.chat_note and redis.call('EXISTS', keys.states[number]) == 1 then add_note(notes, args.chat_note) end
end
return end_call(keys, args, {names = names})
