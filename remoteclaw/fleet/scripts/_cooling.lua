-- Models that are left alone for a while, because their provider has refused or not answered.

-- Leave a model alone until a time, or for `default_ms` if the provider named none. A later end that is known stays.
-- key: of the account and the model
local function cool(key, category, until_ms, default_ms)
  local now = now_ms()
  local ends = tonumber(until_ms or 0)
  if ends <= now then ends = now + tonumber(default_ms) end
  local known = redis.call('GET', key)
  if known and tonumber(string.match(known, '%d+$')) > ends then return end
  redis.call('SET', key, string.format('%s %.0f', category, ends), 'PX', ends - now)
end
