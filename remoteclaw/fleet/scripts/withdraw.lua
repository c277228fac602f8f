-- Remove a waiting entry because its sender has deleted the message. A turn that has taken it up goes on.
-- uses: edits, asides
-- keys: original, inbound, state, outcome, outcome_channel, blob
-- args: outcome_ms, error
-- → withdrawn: it is removed; running: the running turn answers it; gone: it has its outcome, or there is none such
local known = redis.call('GET', keys.original)
local id, part = string.match(known or '', '^(%d+%-%d+) %S+(.*)')
if not id or part ~= '' then return 'gone' end
local outcome = keys.outcome .. id
if redis.call('HEXISTS', outcome, 'withdrawn') == 1 then return 'withdrawn' end  -- a repeated call
local entry = entries_of(keys.inbound, id, id)[1]
if not entry then return 'gone' end
if not is_untouched(keys, id) then return 'running' end
for _, file in ipairs(cjson.decode(entry[2][2]).message.attachments or {}) do
  redis.call('UNLINK', keys.blob .. file.blob)
end
remove_entry(keys.inbound, id)
local now = now_ms()
redis.call('HSET', outcome, 'status', 'dropped', 'finished', now, 'withdrawn', now, 'error', args.error)
redis.call('PEXPIRE', outcome, is_full_for('files') and math.min(args.outcome_ms, HOUR_MS) or args.outcome_ms)
redis.call('PUBLISH', keys.outcome_channel, id)
announce_sessions()
return 'withdrawn'
