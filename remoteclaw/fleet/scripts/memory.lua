-- Return how much memory the server uses; this works on a full server.
-- result: used, limit, own_limit, is_full
--   used, limit, own_limit: in bytes; limit: beyond it the server is full; is_full: 1 if messages are refused
local used, limit, own = memory()
return result{used = used, limit = limit, own_limit = own, is_full = is_full_for('messages') and 1 or 0}
