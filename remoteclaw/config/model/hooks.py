"""The section `[hooks]`."""

from typing import Annotated

from remoteclaw.config.model.section import WITH_WORKERS, Section


class HooksConfig(Section):
    """Python functions, as "module:function", to call at moments of a turn."""

    before_runtime_spawn: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """Before each turn; may return another working directory and more environment."""
    session_resumed: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """A new agent process goes on with a conversation of an earlier one."""
    after_runtime_exit: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """After each turn, with its bounded output and side effects."""
    agent_end: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """After each turn, with its id, success and duration."""
