-- Tell how full the server is; this works on a full one.
-- → bytes that it uses, bytes beyond which it is full, its own limit, 1 if no message is accepted
local used, limit, own = memory()
return {used, limit, own, is_full_for('messages') and 1 or 0}
