-- Return the oldest entries of a session.
-- uses: edits
-- keys: inbound
-- args: after, count
--   after: the id of the entry after which they begin; 0-0 for all
-- → the entries, each in its newest version
return entries_of(keys.inbound, '(' .. args.after, '+', args.count)
