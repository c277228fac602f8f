"""The model of the configuration: every setting, with its type, default and meaning.

The file is `$REMOTECLAW_CONFIG`, else `remoteclaw.toml` in the state directory. It may be absent.
The environment variable `REMOTECLAW__SECTION__KEY` overrides one value; a variable with a single
underscore in the place of a double one is ignored.
"""

from remoteclaw.config.model.agents import AgentConfig, McpServerSettings
from remoteclaw.config.model.budgets import Budget, PersonConfig, Price
from remoteclaw.config.model.channels import (
    AccountConfig,
    ChannelConfig,
    Secret,
    SecretsConfig,
    TokenConfig,
    accounts_of,
)
from remoteclaw.config.model.config import Config
from remoteclaw.config.model.fleet import FleetConfig
from remoteclaw.config.model.gateway import GatewayConfig, JwtConfig, is_loopback
from remoteclaw.config.model.hooks import HooksConfig
from remoteclaw.config.model.queue import DropPolicy, QueueConfig, QueueMode, QueueOverride
from remoteclaw.config.model.redis import RedisConfig
from remoteclaw.config.model.requests import RequestsConfig
from remoteclaw.config.model.sessions import RecordConfig, ResetConfig, SessionsConfig
from remoteclaw.config.model.terminals import TerminalsConfig
from remoteclaw.config.model.tools import GroupConfig, Profile, SenderConfig, Threads, ToolsConfig

__all__ = [
    "AccountConfig",
    "AgentConfig",
    "Budget",
    "ChannelConfig",
    "Config",
    "DropPolicy",
    "FleetConfig",
    "GatewayConfig",
    "GroupConfig",
    "HooksConfig",
    "JwtConfig",
    "McpServerSettings",
    "PersonConfig",
    "Price",
    "Profile",
    "QueueConfig",
    "QueueMode",
    "QueueOverride",
    "RecordConfig",
    "RedisConfig",
    "RequestsConfig",
    "ResetConfig",
    "Secret",
    "SecretsConfig",
    "SenderConfig",
    "SessionsConfig",
    "TerminalsConfig",
    "Threads",
    "TokenConfig",
    "ToolsConfig",
    "accounts_of",
    "is_loopback",
]
