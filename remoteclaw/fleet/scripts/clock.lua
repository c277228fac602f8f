-- Return the time on the clock that all processes of a fleet share.
-- → ms
return now_ms()
