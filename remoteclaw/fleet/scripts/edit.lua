-- Accept the edit of a message that was handled before. An entry that still waits gets the new text in its place. An
-- entry that was taken up never runs again: the agent gets a note with its next turn.
-- uses: replies, requests, entries, sessions, edits, asides
-- keys: original, edit, inbound, state, active, sessions, aside_notes, outcome, bell, blob, blobs*
-- args: sid, entry, grace_ms, dedupe_ms, session_key, lane, digest, is_command, note
-- result: verdict, entry_id, queue
--   original, edit: what is known of the message, and of this edit of it (`Inbound.append`); is_command: the new text
--   is a command, which no edit may bring
--   verdict: accepted|replaced|noted|late|command|refused: what became of it; same: nothing has changed; unknown: nothing
--   is known of the message; full|crowded|incomplete; queue: for the hint that is due, if any
local done = redis.call('GET', keys.edit)
if done then  -- a repeated call
  local verdict, id = string.match(done, '^(%S+) (%S*)')
  return result{verdict = verdict, entry_id = id, queue = queue_if_scheduled(keys.state)}
end
-- What is known of another edit begins with a verdict. Each edit names the first version.
local id, digest, part = string.match(redis.call('GET', keys.original) or '', '^([%d~-]+) (%S+)(.*)')
if not id then return result{verdict = 'unknown'} end
if digest == args.digest then return result{verdict = 'same', entry_id = id} end
if is_full_for('messages') then return result{verdict = 'full'} end
if bytes_of(keys.inbound) + bytes_of(edits_of(keys.inbound)) > MAX_WAITING_BYTES then
  return result{verdict = 'crowded'}
end
for _, blob in ipairs(keys.blobs) do
  if redis.call('EXISTS', blob) == 0 then return result{verdict = 'incomplete'} end
end

-- Put the new version in the place of a waiting entry, with its files in the place of the old ones.
local function replace()
  local before = entries_of(keys.inbound, id, id)[1][2][2]
  for _, file in ipairs(cjson.decode(before).message.attachments or {}) do
    redis.call('UNLINK', keys.blob .. file.blob)
  end
  redis.call('HSET', edits_of(keys.inbound), id, args.entry)
  for _, blob in ipairs(keys.blobs) do redis.call('PERSIST', blob) end
  redis.call('HSET', keys.outcome .. id, 'edited', now_ms(), 'is_edited', 1)
end

local verdict, queue = 'late', ''
if args.is_command == '1' then
  verdict = 'command'
elseif id == '~' then  -- the message was not for the agent, and is now
  if redis.call('XLEN', keys.inbound) >= MAX_WAITING then return result{verdict = 'crowded'} end
  id, queue = accept(keys, args)
  for _, blob in ipairs(keys.blobs) do redis.call('PERSIST', blob) end
  verdict = 'accepted'
elseif id == '-' then
  verdict = 'refused'
else
  local waits = is_untouched(keys, id) and not id_at_most(id, redis.call('HGET', keys.state, 'stop_entry'))
  if waits and part == '' then
    replace()
    verdict = 'replaced'
  else
    add_note(keys.aside_notes, args.note)
    if waits then verdict = 'noted' end
  end
end
redis.call('SET', keys.original, id .. ' ' .. args.digest .. part, 'PX', args.dedupe_ms)
redis.call('SET', keys.edit, verdict .. ' ' .. id, 'PX', args.dedupe_ms)
return result{verdict = verdict, entry_id = id, queue = queue}
