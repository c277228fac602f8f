-- The time that a whole fleet goes by.
-- → ms
return now_ms()
