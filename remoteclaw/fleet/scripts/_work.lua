-- What works for a session: its tasks and branches, and theirs.

-- Tell that something has changed below sessions. above: their ids, the nearest first; account, hint: the channel
-- of the account whose chat the topmost one has, and what its adapter is told
local function announce_work(above, account, hint)
  if above then redis.call('PUBLISH', 'rc:work', above) end
  if account then redis.call('PUBLISH', account, hint) end
end
