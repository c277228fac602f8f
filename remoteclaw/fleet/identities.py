"""The identities of agents in their conversations, which every host can read.

A conversation keeps the digest of its identity (`Conversation.identity`), so an edited file changes
no prompt that a provider has in its cache. The texts are stored here by digest.
"""

import asyncio
import logging

from remoteclaw.config.home import Home
from remoteclaw.config.identity import (
    PEOPLE,
    check_sizes,
    identity_files,
    language_of,
    read_identity_file,
)
from remoteclaw.config.model import Config
from remoteclaw.errors import AgentUnavailable, ConfigError, ErrorCategory, RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import UNTOLD, AgentIdentity, conversation_name
from remoteclaw.runtimes import detect_runtime

#: An identity is kept for this long after the last turn with it, in milliseconds: much longer than
#: a session map, which other calls than turns also renew.
IDENTITY_MS = 30 * 24 * 3600 * 1000
#: The identity of an agent without texts, which isn't stored.
NOTHING = AgentIdentity()

log = logging.getLogger(__name__)


class Identities:
    """The identities of agents, and their files as they last could be read."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def current(
        self, config: Config, home: Home, session: SessionKey, *, is_direct: bool
    ) -> AgentIdentity:
        """Return the identity of a conversation of `session` that begins now, by this host's files.

        A file that can't be used counts as it was when it last could, on any host. Raises
        `AgentUnavailable` if it never could: the agent doesn't work without its instructions.
        """
        texts, problems = await asyncio.to_thread(_read, config, home, session, is_direct)
        stored = keys.identity_files(session.agent)
        client = self._scripts.client
        for name, problem in problems.items():
            log.error("the last readable text of %s is used: %s", name, problem)
            text = await self._scripts.call(client.hget, stored, name)
            if text is None and not name.startswith(PEOPLE):
                raise AgentUnavailable(problem, category=ErrorCategory.NOT_INSTALLED)
            texts[name] = text.decode() if text else ""
        if good := {name: text for name, text in texts.items() if text and name not in problems}:
            try:
                await self._scripts.call(client.hset, stored, mapping=good)
            except RedisRefused as refused:
                log.warning("the files of %s are not kept: %s", session.agent, refused)
        language = language_of(config, session) if is_direct else ""
        return AgentIdentity({name: text for name, text in texts.items() if text}, language)

    async def pending(self, config: Config, home: Home, view: SessionView) -> str:
        """Return which changes of files the conversation of a session has not taken over, or can't.

        Empty if there are none. Raises `ConfigError` if the session's agent or project is gone.
        """
        agent, settings = config.agent(view.key.agent, view.project)
        runtime = settings.runtime or detect_runtime()[0]
        name = conversation_name(agent, runtime, str(home.workspace_path(agent, settings)))
        digest = view.identities.get(name, "").removeprefix(UNTOLD)
        kept = await self.find(digest) if digest else None
        if kept is None:
            return ""
        session, _ = view.launch_of
        is_direct = session.channel_id == session.user or kept.is_about_person
        try:
            now = await self.current(config, home, session, is_direct=is_direct)
        except AgentUnavailable as problem:
            return str(problem)
        changed = kept.changes_to(now)
        have = "has" if len(changed) == 1 else "have"
        names = ", ".join(changed)
        return f"{names} {have} changed: from the next conversation on" if changed else ""

    async def find(self, digest: str) -> AgentIdentity | None:
        """Return the identity with a digest, and keep it; None if it is no longer stored."""
        if digest == NOTHING.digest:
            return NOTHING
        client, key = self._scripts.client, keys.identity(digest)
        stored = await self._scripts.call(client.getex, key, px=IDENTITY_MS)
        return AgentIdentity.decode(stored) if stored else None

    async def keep(self, identity: AgentIdentity) -> bool:
        """Store an identity; False if Redis has no room for it."""
        if identity == NOTHING:
            return True
        client, key = self._scripts.client, keys.identity(identity.digest)
        try:
            await self._scripts.call(client.set, key, identity.encode(), px=IDENTITY_MS)
        except RedisRefused as refused:
            log.warning("an identity is not kept: %s", refused)
            return False
        return True


def _read(
    config: Config, home: Home, session: SessionKey, is_direct: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of the files in their order, and the problems of those without one."""
    directory = home.agent_files(session.agent)
    files = identity_files(config, session.agent, session if is_direct else None)
    texts: dict[str, str] = {}
    problems: dict[str, str] = {}
    for file in files:
        try:
            text = read_identity_file(directory, file)
        except ConfigError as problem:
            problems[file.name] = str(problem)
            text = ""
        if text is not None:
            texts[file.name] = text
    listed = [file.name for file in files if not file.is_about_person]
    try:
        check_sizes(session.agent, [texts[name] for name in listed])
    except ConfigError as problem:
        problems |= dict.fromkeys(listed, str(problem))
    return texts, problems
