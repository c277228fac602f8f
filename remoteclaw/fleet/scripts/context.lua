-- Store the size of a conversation after a turn, and what a compaction between two turns has used and made of it.
-- uses: record, usage
-- keys: state, record, usage, usage_day, usage_hour, spent
-- args: epoch, nonce, context?, has_summary, usage?, agent, sid, root, payers?, usage_ms, zone_offsets, record?,
--   record_bytes?, record_ms?
--   context: the size, as the state has it; none removes it; has_summary: whether the conversation was summarized;
--   record: the lines about that
local fence = fenced(keys.state, args.epoch)
if fence then return fence end
if redis.call('HGET', keys.state, 'context_nonce') == args.nonce then return 1 end  -- a repeated call
redis.call('HSET', keys.state, 'context_nonce', args.nonce)
if args.context then
  redis.call('HSET', keys.state, 'context', args.context)
else
  redis.call('HDEL', keys.state, 'context')
end
if args.has_summary == '1' then redis.call('HSET', keys.state, 'has_untold_summary', 1) end
if args.usage then add_usage(keys, args, args.usage) end
if args.record and not is_full_for('messages') then
  append_record(keys.record, args.record, args.record_bytes, args.record_ms)
end
announce_sessions()
return 1
