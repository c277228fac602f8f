-- Return how much memory the server uses; this works on a full server.
-- → used bytes, bytes beyond which the server is full, its own limit, 1 if messages are refused
local used, limit, own = memory()
return {used, limit, own, is_full_for('messages') and 1 or 0}
