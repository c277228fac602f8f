-- Return which models are left alone.
-- keys: cooling*
-- args:
-- → for each key: the category of the failure, and the end in ms; empty if the model can be asked
local found, now = {}, now_ms()
for position, key in ipairs(keys.cooling) do
  local noted = redis.call('GET', key) or ''
  found[position] = (tonumber(string.match(noted, '%d+$') or 0) > now) and noted or ''
end
return found
