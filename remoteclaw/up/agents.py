"""Checks the agent CLIs of this host: whether they are installed, signed in and able to work.

Sign-ins are checked without a request to a model. A CLI that can't report its sign-in counts as
signed in: gemini has no such command, and opencode has models that need no sign-in.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from remoteclaw.config.home import Home
from remoteclaw.config.model import AgentConfig, Config
from remoteclaw.config.permissions.permissions import PermissionRule
from remoteclaw.errors import AgentUnavailable
from remoteclaw.host.environment import past_proxies
from remoteclaw.host.process import read_output
from remoteclaw.host.terminal import one_line
from remoteclaw.protocols import AgentSpec, Capabilities
from remoteclaw.runtimes import CLIS, create_cli_runtime, detect_runtime
from remoteclaw.runtimes.gemini.runtime import trust_problem
from remoteclaw.runtimes.opencode.config import plugin_problem
from remoteclaw.runtimes.wire import mapping
from remoteclaw.session.bridge import spec_in_place_of
from remoteclaw.session.fallbacks import misfit
from remoteclaw.up import mcp_call

#: Time limit for a CLI to print its version, and to report its sign-in, in seconds.
VERSION_S, SIGN_IN_S = 20.0, 20.0
#: Variables that programs of agents often need, and that an agent gets only by `env_pass`.
WELL_KNOWN = tuple(
    "SSH_AUTH_SOCK GIT_SSH_COMMAND GNUPGHOME GH_TOKEN GITHUB_TOKEN GITLAB_TOKEN KUBECONFIG "
    "DOCKER_HOST DOCKER_CONFIG AWS_PROFILE AWS_REGION AWS_ACCESS_KEY_ID AZURE_CONFIG_DIR "
    "GOOGLE_APPLICATION_CREDENTIALS JAVA_HOME MAVEN_OPTS GRADLE_USER_HOME ANDROID_HOME GOPATH "
    "GOPROXY CARGO_HOME RUSTUP_HOME NVM_DIR PNPM_HOME NODE_PATH NPM_TOKEN PYENV_ROOT PYTHONPATH "
    "PIP_INDEX_URL UV_INDEX_URL LD_LIBRARY_PATH PKG_CONFIG_PATH".split()
)
#: Descriptions of the values of `permissions`, after "the agent may".
MAY = {
    "ask": "use tools that need no permission; for others a person is asked",
    "edits": "change files in that directory; for others that need a permission a person is asked",
    "auto": "run commands, change files and use every tool without asking",
    "deny": "use tools that need no permission, and send no files",
}


@dataclass(frozen=True, slots=True)
class InstalledCli:
    """An agent CLI that is installed on this host."""

    name: str
    version: str
    program: str
    capabilities: Capabilities
    warning: str
    """A warning about this version; empty if the version is tested."""


def installed_clis(config: Config) -> list[InstalledCli]:
    """Return the known agent CLIs on PATH, and installed ACP agents of the configuration."""
    clis = [_installed_cli(name, name, AgentConfig()) for name in CLIS]
    for name, settings in config.agents.items():
        if settings.runtime == "acp":
            clis.append(_installed_cli(f"{name} (acp)", "acp", settings))
    return [cli for cli in clis if cli is not None]


def _installed_cli(name: str, runtime_name: str, settings: AgentConfig) -> InstalledCli | None:
    """Return a CLI with its version; None if it is not installed."""
    runtime = create_cli_runtime(runtime_name)
    program, env = _command(runtime_name, settings)
    if runtime.find(program, env.get("PATH")) is None:
        return None
    version = version_of(program, env)
    warning = untested_version(runtime_name, version)
    return InstalledCli(name, version, program, runtime.capabilities, warning)


def agent_problem(home: Home, name: str, settings: AgentConfig) -> str | None:
    """Return why an agent can't work on this host, and what to do; None if no problem is found."""
    runtime_name = _runtime_name(settings)
    command, env = _command(runtime_name, settings)
    if create_cli_runtime(runtime_name).find(command, env.get("PATH")) is None:
        hint = f"install it, or set [agents.{name}] command"
        return f"{runtime_name}: {command!r} is not installed: {hint}."
    workspace = home.workspace_path(name, settings)
    if settings.workspace is not None and not workspace.is_dir():
        return f"its workspace {workspace} does not exist: create it."
    if settings.permissions == "deny":
        try:
            create_cli_runtime(runtime_name).fitted(_spec(home, name, settings))
        except AgentUnavailable as error:
            return str(error)
    if runtime_name == "opencode" and not settings.trust_workspace:
        return plugin_problem(str(workspace), env)
    return None


def openings_of(home: Home, name: str, settings: AgentConfig) -> str:
    """Return what files of the user allow an agent besides its permissions; empty for nothing."""
    if settings.permissions == "deny":
        return ""  # it isn't started, and `agent_problem` says why
    openings = create_cli_runtime(_runtime_name(settings)).openings(_spec(home, name, settings))
    return f"more than its permissions is allowed: {'; '.join(openings)}" if openings else ""


def _spec(home: Home, name: str, settings: AgentConfig) -> AgentSpec:
    """Return those values of an agent's specification that its permissions depend on."""
    runtime_name = _runtime_name(settings)
    program, env = _command(runtime_name, settings)
    return AgentSpec(
        runtime=runtime_name,
        command=(program,),
        workspace=str(home.workspace_path(name, settings)),
        env=env,
        permissions=settings.permissions,
        allow=settings.allow,
        trust_workspace=settings.trust_workspace,
    )


def tools_problem(home: Home, name: str, settings: AgentConfig) -> str | None:
    """Return why a working agent gets none of RemoteClaw's tools; None if it can get them."""
    is_gemini = _runtime_name(settings) == "gemini"
    if not is_gemini or settings.trust_workspace or settings.permissions == "deny":
        return None
    _, env = _command("gemini", settings)
    workspace = str(home.workspace_path(name, settings))
    return trust_problem(workspace, env, asks=settings.permissions != "auto")


def rules_problem(settings: AgentConfig) -> str | None:
    """Return which of an agent's permissions have no effect with its CLI; None if all have one."""
    name = _runtime_name(settings)
    supported = create_cli_runtime(name).capabilities.rules
    ignored = [rule for rule in settings.allow if PermissionRule.parse(rule).kind not in supported]
    see = "see the permissions in docs/permissions.md"
    if name == "demo":
        return None  # the demo agent uses no tools
    if settings.permissions == "edits" and "Edit" not in supported:
        return f'{name} does not say which files it would change, so "edits" is like "ask"; {see}.'
    if ignored and settings.permissions != "auto":
        return f"{', '.join(ignored)} in its allow has no effect with {name}; {see}."
    return None


def fallbacks_problem(home: Home, config: Config, name: str) -> str | None:
    """Return which of an agent's fallbacks can't keep to its rules; None if all can."""
    settings, problems = config.agents[name], []
    own, runtime = _spec(home, name, settings), create_cli_runtime(_runtime_name(settings))
    for other in settings.fallback_agents:
        cli = create_cli_runtime(_runtime_name(config.agents[other]))
        theirs = spec_in_place_of(own, config.agents[other], cli)
        if why := misfit(own, runtime, theirs, cli):
            problems.append(f"agent:{other} in its fallbacks is never asked: {why}")
    return "; ".join(problems) or None


def passing_problem(settings: AgentConfig) -> str | None:
    """Return which variables of an agent's `env_pass` are not set here; None if all are."""
    missing = [name for name in settings.env_pass if name not in os.environ]
    return f"{', '.join(missing)} of its env_pass is not set here" if missing else None


def not_passed(config: Config) -> str | None:
    """Return which well-known variables are set here and not passed; None if there are none.

    Agents whose configuration has `env_pass` count as decided.
    """
    agents = {
        name: [
            variable
            for variable in WELL_KNOWN
            if variable in os.environ and variable not in environment_of(settings)
        ]
        for name, settings in config.agents.items()
        if "env_pass" not in settings.model_fields_set
    }
    missing = [name for name in WELL_KNOWN if any(name in each for each in agents.values())]
    if not missing:
        return None
    names = [name for name, each in agents.items() if each]
    given = ", ".join(f'"{name}"' for name in missing)
    return (
        f"{', '.join(missing)}: set here, and not passed to {', '.join(names)}. "
        f"[agents.{names[0]}] env_pass = [{given}] passes them, env_pass = [] hides this"
    )


def environment_of(settings: AgentConfig) -> dict[str, str]:
    """Return the environment that an agent gets on this host."""
    return dict(_command(_runtime_name(settings), settings)[1])


def call_tools(settings: AgentConfig, url: str, token: str) -> str:
    """Return how many tools an MCP server lists for a program with an agent's environment.

    If it does not answer, return why.
    """
    env = past_proxies(environment_of(settings), url) | {mcp_call.TOKEN: token}
    # The agent's own variables for Python are of no use to this program.
    argv = [sys.executable, "-I", mcp_call.__file__, url]
    output = read_output(argv, env=env, timeout_s=2 * mcp_call.ANSWER_S, may_fail=True)
    return one_line(output or "it takes too long")


def sign_in_problem_of(settings: AgentConfig) -> str | None:
    """Return why an installed agent can't use its models; None if no problem is found."""
    runtime_name = _runtime_name(settings)
    program, env = _command(runtime_name, settings)
    arguments = (settings.command or create_cli_runtime(runtime_name).command)[1:]
    return sign_in_problem(runtime_name, (program, *arguments), env)


def describe_agent(home: Home, name: str, settings: AgentConfig) -> str:
    """Return a description of an agent: its CLI, the reason for that, and its workspace."""
    runtime_name, why = (settings.runtime, "configured") if settings.runtime else detect_runtime()
    program, env = _command(runtime_name, settings)
    version = "" if runtime_name == "demo" else version_of(program, env)
    about = " ".join(filter(None, (runtime_name, version, f"({why})")))
    works = f"works in {home.workspace_path(name, settings)}"
    untested = untested_version(runtime_name, version)
    return "; ".join(filter(None, (f"{about}, {works}", untested)))


def introduction(home: Home, name: str, settings: AgentConfig) -> list[tuple[str, str]]:
    """Return an introduction of an agent for people, as labels and texts."""
    runtime_name, why = (settings.runtime, "") if settings.runtime else detect_runtime()
    about = f"{runtime_name}: {why}" if why else f"{runtime_name}, as configured"
    workspace = str(home.workspace_path(name, settings))
    if settings.workspace is None:
        workspace += ", a directory of its own"
    model = settings.model or f"what {runtime_name} itself is set to"
    model += f"; for tasks, {settings.task_model}" if settings.task_model else ""
    lines = [
        ("agent", f"{name} is {about}"),
        ("model", model),
        ("works in", workspace),
        ("may", f'{MAY[settings.permissions]} (permissions = "{settings.permissions}")'),
    ]
    if settings.allow and settings.permissions != "auto":
        lines.append(("and", f"without asking: {', '.join(settings.allow)}"))
    if runtime_name == "demo":
        lines.pop(1)  # the demo agent has no model
    elif settings.workspace is not None and not settings.trust_workspace:
        ignored = "its CLAUDE.md, AGENTS.md, settings and hooks, until trust_workspace = true"
        lines.append(("ignores", ignored))
    if settings.permissions == "auto" and os.geteuid() == 0:
        root = "you are root: what it runs without asking may change all of this machine"
        lines.append(("careful", root))
    return lines


def version_of(program: str, env: Mapping[str, str]) -> str:
    """Return the version that a CLI prints; empty if it prints none."""
    output = read_output([program, "--version"], env=env, timeout_s=VERSION_S)
    version = re.search(r"\d+(\.\d+)+[\w.+-]*", output or "")
    return one_line(version[0], max_chars=40) if version else ""


def untested_version(runtime_name: str, version: str) -> str:
    """Return a warning if the first two numbers of `version` are not the tested ones, else ""."""
    tested = create_cli_runtime(runtime_name).capabilities.tested
    if not version or not tested or version.split(".")[:2] == tested.split(".")[:2]:
        return ""
    return f"tested with {tested}, so try this version with care"


def _runtime_name(settings: AgentConfig) -> str:
    return settings.runtime or detect_runtime()[0]


def _command(runtime_name: str, settings: AgentConfig) -> tuple[str, Mapping[str, str]]:
    """Return an agent's program and environment, as the bridge uses them."""
    runtime = create_cli_runtime(runtime_name)
    command = settings.command or runtime.command
    env = past_proxies(runtime.environment(os.environ) | settings.variables(os.environ))
    return runtime.find(command[0], env.get("PATH")) or command[0], env


def sign_in_problem(runtime: str, command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return that a CLI is not signed in, and what to do; None if it is, or can't report it."""
    find_hint = {"claude": _claude_hint, "codex": _codex_hint}.get(runtime)
    hint = find_hint(command, env) if find_hint else None
    return f"{runtime} is not signed in: {hint}." if hint else None


def _claude_hint(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return how to sign in to claude; None if it is signed in."""
    try:
        status = mapping(orjson.loads(_output((*command, "auth", "status"), env)))
    except ValueError:
        return None  # an older version has no such command
    is_signed_out = status.get("loggedIn") is False
    return "run `claude auth login`, or give it ANTHROPIC_API_KEY" if is_signed_out else None


def _codex_hint(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return how to sign in to codex; None if it is signed in, or uses a custom provider."""
    home = Path(env.get("HOME") or "~").expanduser()
    config = Path(env.get("CODEX_HOME") or home / ".codex") / "config.toml"
    if any("model_provider" in text for text in (*command, _content(config))):
        return None  # the provider may need no sign-in
    is_signed_out = "Not logged in" in _output((*command, "login", "status"), env)
    return "run `codex login`" if is_signed_out else None


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _output(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return what a command prints, with any exit status; empty if it can't be run."""
    return read_output(argv, env=env, timeout_s=SIGN_IN_S, may_fail=True) or ""
