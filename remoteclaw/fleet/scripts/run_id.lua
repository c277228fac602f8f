-- Return the id of the server's run, which another start changes.
-- → the id; nil if the server does not say
return run_id()
