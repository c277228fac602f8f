"""The rights in Redis that RemoteClaw needs, and which of them a user lacks."""

from typing import TYPE_CHECKING

from remoteclaw.fleet.keys import PROBE

if TYPE_CHECKING:
    import redis.asyncio

#: The keys and channels: RemoteClaw's and RQ's.
PATTERNS = ("rc:*", "rq:*")
#: The commands of RemoteClaw, its scripts and RQ's workers, each in a complete form, with K for a
#: key: a server may crash on the check of a command that lacks arguments.
_COMMANDS = """
    client|setname 1, wait 1 1, info, time, scan 0, memory|usage K, pubsub|numsub K
    eval 1 1 K, evalsha 1 1 K, script|load 1, script|exists 1, multi, exec, watch K, unwatch
    publish K 1, subscribe K, unsubscribe K
    append K 1, get K, getdel K, getex K, getrange K 0 1, incrby K 1, set K 1, setnx K 1
    setrange K 0 1, strlen K
    del K, exists K, expire K 1, persist K, pexpire K 1, pttl K, rename K K, ttl K, unlink K
    hdel K 1, hexists K 1, hget K 1, hgetall K, hincrby K 1 1, hincrbyfloat K 1 1, hkeys K, hlen K
    hmget K 1, hrandfield K, hset K 1 1, hsetnx K 1 1, hstrlen K 1, hvals K
    blmove K K left right 1, blpop K 1, llen K, lmove K K left right, lpop K, lpos K 1, lpush K 1
    lrange K 0 1, lrem K 0 1, ltrim K 0 1, rpush K 1
    sadd K 1, scard K, sismember K 1, smembers K, srem K 1
    xadd K * 1 1, xdel K 1-1, xlen K, xrange K - +, xread streams K 0, xrevrange K + -
    zadd K 1 1, zcard K, zrange K 0 1, zrangebyscore K 0 1, zrem K 1, zremrangebyrank K 0 1
    zremrangebyscore K 0 1, zrevrange K 0 1, zscan K 0, zscore K 1
"""
_FORMS = tuple(form.strip() for form in _COMMANDS.replace("\n", ",").split(",") if form.strip())
COMMANDS = tuple(form.partition(" ")[0] for form in _FORMS)
#: The rules of an ACL before those commands: AUTH, PING, SELECT, and WAITAOF, which older servers
#: don't know by its name.
_CONNECTION = ("-@all", "+@connection", "-client")

#: Returns the number of the first command in ARGV that the user may not run, with 0 before 7.0,
#: whose scripts can't ask.
_MISSING = """
if not redis.acl_check_cmd then return 0 end
for number, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '%S+') do words[#words + 1] = word end
  if not redis.acl_check_cmd(unpack(words)) then return number end
end
return 0
"""


def acl_setuser(password: str) -> str:
    """Return the command that creates the user `remoteclaw` with only these rights."""
    keys, channels = (" ".join(sign + each for each in PATTERNS) for sign in "~&")
    commands = " ".join((*_CONNECTION, *(f"+{each}" for each in COMMANDS)))
    return (
        f"ACL SETUSER remoteclaw on >{password} resetkeys {keys} resetchannels {channels} "
        f"{commands}"
    )


async def missing_right(client: "redis.asyncio.Redis") -> str | None:
    """Return what the connection's user may not do, as "run X"; None if nothing is known to lack.

    Servers before 7.0 can't say, and refuse a command when it is run.
    """
    needs = [("eval 1 0", "run EVAL")]
    for each in PATTERNS:
        key = each.replace("*", "probe")
        needs.append((f"exists {key}", f"run EXISTS with the keys {each}"))
        needs.append((f"publish {key} 1", f"run PUBLISH on the channels {each}"))
    for form, name in zip(_FORMS, COMMANDS, strict=True):
        command = form.replace("|", " ").replace("K", PROBE)
        needs.append((command, f"run {name.replace('|', ' ').upper()}"))
    number = int(await client.eval(_MISSING, 0, *(command for command, _ in needs)))
    return needs[number - 1][1] if number else None
