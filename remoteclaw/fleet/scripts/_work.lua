-- Announcements of tasks and branches.

-- Announce that something has changed below sessions. above: the ids of these sessions, the nearest first; account: the
-- channel of the account in whose chat the topmost session is; hint: the message for that account's adapter
local function announce_work(above, account, hint)
  if above then redis.call('PUBLISH', 'rc:task-updates', above) end
  if account then redis.call('PUBLISH', account, hint) end
end
