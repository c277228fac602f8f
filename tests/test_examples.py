"""The examples, each as its README says, on one `remoteclaw up` with all their configurations."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from remoteclaw.channels.slack.manifest import BOT_SCOPES, EVENTS
from remoteclaw.config.home import Home
from tests.support.agents import ROOT
from tests.support.bridges import acp_script
from tests.support.pages import OWN
from tests.support.slack import SlackWorkspace
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import ANN, GROUP
from tests.support.up import address, remoteclaw, running
from tests.support.waiting import HANG_S, eventually_sync

EXAMPLES = ROOT / "examples"
PROJECTS = {5: "web", 6: "shop", 7: "notes"}
WEBHOOK_TOKEN = "0123456789abcdef"
#: An agent that asks before it touches a file.
ASKING = """
import time
prompt = begin()
while True:
    text('I look. ')
    say(jsonrpc='2.0', id=0, method='session/request_permission', params=dict(
        sessionId='s',
        toolCall=dict(
            toolCallId='t', title='touch x', kind='execute', rawInput=dict(command='touch x')),
        options=[dict(optionId='yes', name='Yes', kind='allow_once'),
                 dict(optionId='no', name='No', kind='reject_once')]))
    chosen = asked()['result']['outcome'].get('optionId')
    text('Touched' if chosen == 'yes' else 'Left alone')
    time.sleep(0.5)  # live text is sent every quarter of a second
    text('.')
    answer(prompt, stopReason='end_turn')
    prompt = asked('session/prompt')
"""


def ran(
    program: str, *arguments: str, typed: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of an example as a user does, with nothing but Python's standard library."""
    return subprocess.run(
        [sys.executable, "-I", EXAMPLES / program, *arguments],
        input=typed, capture_output=True, text=True, timeout=HANG_S, env=env, check=False,
    )  # fmt: skip


def test_every_example_is_run_and_listed() -> None:
    directories = {each.parent.name for each in EXAMPLES.glob("*/README.md")}

    listed = set(re.findall(r"\]\((\S+)/README\.md\)", (EXAMPLES / "README.md").read_text()))
    assert directories == listed == {
        "team-slack", "telegram-projects", "phone-and-laptop", "ci", "cockpit",
        "monitoring",
    }  # fmt: skip
    assert all(
        f"examples/{name}/README.md" in (ROOT / "docs/README.md").read_text() for name in listed
    )


def test_the_examples_do_what_their_readmes_say(
    home: Home, bot: TelegramBot, team: SlackWorkspace, directory: Path
) -> None:
    members = members_of(team)
    home.config_file.write_text(configuration(bot, team, members, directory))
    with running(home, WEBHOOK_TOKEN=WEBHOOK_TOKEN, REMOTECLAW__FLEET__WORKERS="4"):
        check_team(team, members)
        check_projects(home, bot)
        check_phone(home)
        check_ci(home)
        check_cockpit(home)


def members_of(team: SlackWorkspace) -> dict[str, str]:
    """Make the people and channels of the example, and return their ids by those in its file."""
    team.set(scopes=[*BOT_SCOPES], events=[*EVENTS], limit_scale=100)
    ann, bob = team.person("ann"), team.person("bob")
    room = {name: team.channel(name, members=[ann, bob]) for name in ("web", "shop")}
    ids = {"U024BE7LH": ann, "U061F7AUR": bob}
    return ids | {"C0WEB45678": room["web"], "C0SHOP5678": room["shop"]}


def configuration(
    bot: TelegramBot, team: SlackWorkspace, members: dict[str, str], directory: Path
) -> str:
    """Return the configurations of all examples, with what a user replaces in them."""
    text = "\n".join(each.read_text() for each in sorted(EXAMPLES.glob("*/remoteclaw.toml")))
    (tokens := directory / ".remoteclaw/tokens").mkdir(parents=True)
    (tokens / "telegram-default").write_text(bot.token)
    (tokens / "slack-default").write_text(team.bot_token)
    (tokens / "slack-default.app_token").write_text(team.app_token)
    for name in ("code/web", "code/shop", "notes"):
        (directory / name).mkdir(parents=True)
        (directory / name / f"of-{Path(name).name}.txt").touch()
    text = text.replace("~/", f"{directory}/").replace("123456789", str(ANN))
    text = text.replace("[channels.telegram]", f'[channels.telegram]\napi_url = "{bot.api_url}"')
    for example, id_ in members.items():
        text = text.replace(example, id_)
    text = text.replace("[channels.slack]", f'[channels.slack]\napi_url = "{team.api_url}"')
    asks = f'runtime = "acp"\ncommand = {json.dumps(acp_script(directory, ASKING))}\n'
    text = text.replace("[agents.shop]", f"[agents.shop]\n{asks}")
    return f'{text}\n[agents.main]\nruntime = "demo"\n[agents.careful]\n{asks}'


def check_team(team: SlackWorkspace, members: dict[str, str]) -> None:
    ann, bob, web, shop = members.values()
    cid = team.person("cid")

    def thread(channel: str, text: str) -> str:
        return str(team.say(channel, cid, f"<@{team.bot}> {text}"))

    def said(channel: str, ts: str) -> str:
        return "\n".join(team.texts(channel, ts))

    def card(thread: str) -> str:
        buttons = ((m["ts"], b) for m in team.messages(shop, thread) for b in m.get("blocks", ()))
        return next((str(ts) for ts, block in buttons if block["type"] == "actions"), "")

    eventually_sync(team.sockets)
    team.command(web, ann, "status")
    eventually_sync(lambda: team.ephemerals(ann))  # what was written before isn't answered
    first, second, asking = thread(web, "hello"), thread(web, "hi"), thread(shop, "touch it")
    eventually_sync(lambda: "message 1 of our" in said(web, first))
    team.say(web, bob, "and then?", thread=first)
    eventually_sync(lambda: "message 2 of our" in said(web, first))
    eventually_sync(lambda: "message 1 of our" in said(web, second))
    ts = eventually_sync(lambda: card(asking))
    team.press(shop, ts, cid, "once")
    eventually_sync(lambda: team.ephemerals(cid))
    assert "Touched" not in said(shop, asking)
    team.press(shop, ts, bob, "once")
    eventually_sync(lambda: "Touched" in said(shop, asking))

    assert "of-web.txt" in said(web, first)
    assert not team.ephemerals(bob)


def check_projects(home: Home, bot: TelegramBot) -> None:
    bot.chat(GROUP, topics=[*PROJECTS])
    bot.say("/pair", chat=GROUP, by=ANN)
    eventually_sync(lambda: len(bot.texts(GROUP)) == 1)
    for topic, project in PROJECTS.items():
        bot.say(f"/project {project}", chat=GROUP, by=ANN, thread=topic)
        bot.say(f"@{bot.username} hello", chat=GROUP, by=ANN, thread=topic)
    bot.say(
        "/cron add every weekday at 9: What is new since yesterday?", chat=GROUP, by=ANN, thread=6
    )
    eventually_sync(
        lambda: "Added" in said(bot)[6] and all("1 of our" in each for each in said(bot).values())
    )
    (job,) = json.loads(remoteclaw(home, "cron", "list", "--json").stdout)["jobs"]
    bot.say(f"/cron run {job['id'][:4]}", chat=GROUP, by=ANN, thread=6)
    eventually_sync(lambda: "message 2 of our" in said(bot)[6])

    for topic, project in PROJECTS.items():
        others = {*PROJECTS.values()} - {project}
        assert f"of-{project}.txt" in said(bot)[topic]
        assert not [other for other in others if f"of-{other}.txt" in said(bot)[topic]]
    assert job["words"] == "every weekday at 09:00"


def said(bot: TelegramBot) -> dict[int, str]:
    """Return what the bot has written in each topic."""
    texts = dict.fromkeys(PROJECTS, "")
    for message in bot.chat(GROUP):
        if message["from"]["id"] == bot.id and "message_thread_id" in message:
            texts[message["message_thread_id"]] += message["text"]
    return texts


def check_phone(home: Home) -> None:
    """The proxy is left out: what it sends is a request with the name that the phone has opened."""
    opened = remoteclaw(home, "open", "--days", "7")
    here, there = opened.stdout.strip(), opened.stderr.strip()
    origin, _, code = there.removeprefix("On another device, instead: ").partition("/#")
    host = {"Host": "claw.example.org"}
    gateway = here.partition("/#")[0]

    def fetched(path: str, body: bytes | None = None, **headers: str) -> Any:
        request = urllib.request.Request(f"{gateway}{path}", body, {**host, **headers})
        return urllib.request.urlopen(request, timeout=HANG_S)

    body = json.dumps({"code": code}).encode()
    with fetched("/") as page, fetched("/page/login", body, Origin=origin, **OWN) as login:
        status, cookie = page.status, login.headers["Set-Cookie"]

    assert origin == "https://claw.example.org"
    assert here.endswith(code)
    assert status == 200
    assert "; Secure" in cookie
    assert " admin " in remoteclaw(home, "token", "list").stdout


def check_ci(home: Home) -> None:
    env = {"REMOTECLAW_WEBHOOK": f"{address(home)}/webhook", "WEBHOOK_TOKEN": WEBHOOK_TOKEN}

    answered = ran("ci/ask.py", "--id", "1", "hello", **env)
    repeated = ran("ci/ask.py", "--id", "1", "hello", **env)
    failed = ran("ci/ask.py", "fail", **env)
    late = ran("ci/ask.py", "--timeout", "1", "slow", **env)
    unsigned = ran("ci/ask.py", "hello", **{**env, "WEBHOOK_TOKEN": "wrong"})

    assert (answered.returncode, answered.stderr) == (0, "")
    assert "this is message 1 of our conversation" in answered.stdout
    assert repeated.stdout == answered.stdout
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "couldn't finish your message" in failed.stderr
    assert (late.returncode, late.stdout, late.stderr) == (3, "", "no answer within 1 seconds\n")
    assert unsigned.returncode == 1
    assert "not signed with its token" in unsigned.stderr


def check_cockpit(home: Home) -> None:
    token = remoteclaw(home, "token", "create", "cockpit", "--scope", "admin").stdout.strip()
    env = {"REMOTECLAW_URL": address(home), "REMOTECLAW_TOKEN": token}
    chat = invoked(env, "chat.open", agentId="careful", follow="nothing")
    invoked(env, "chat.send", sessionKey=chat["sessionKey"], text="hello", messageId="1")
    sid = chat["sid"][:8]

    def waiting() -> str:
        return ran("cockpit/cockpit.py", "requests", **env).stdout

    eventually_sync(waiting)
    listed = ran("cockpit/cockpit.py", "list", **env)
    request = waiting().partition("\t")[0]
    answered = ran("cockpit/cockpit.py", "answer", request, "deny", "not", "now", **env)
    sent = ran("cockpit/cockpit.py", "send", sid, "again", typed="once\n", **env)
    unknown = ran("cockpit/cockpit.py", "send", "nobody", "again", **env)

    assert sid in listed.stdout, listed.stderr
    assert "Denied" in answered.stdout
    assert (sent.returncode, sent.stderr) == (0, "")
    assert "\ttouch x\n" in sent.stdout
    assert "  … 'Touched' a tool\n" in sent.stdout
    assert sent.stdout.endswith("I look.\n\nTouched.\n")
    assert "is no session" in unknown.stderr


def invoked(env: dict[str, str], method: str, **params: Any) -> Any:
    """Call a method over HTTP."""
    headers = {"Authorization": f"Bearer {env['REMOTECLAW_TOKEN']}"}
    body = json.dumps({"tool": method, "args": params}).encode()
    request = urllib.request.Request(f"{env['REMOTECLAW_URL']}/tools/invoke", body, headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return json.load(answer)["result"]
