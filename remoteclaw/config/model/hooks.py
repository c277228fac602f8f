"""The section `[hooks]`."""

from typing import Annotated

from remoteclaw.config.model.section import WITH_WORKERS, Section


class HooksConfig(Section):
    """Python functions, each as "module:function", that workers call at moments of a turn."""

    before_runtime_spawn: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """Called before each turn. A function may return another working directory and additional
    environment variables for the agent."""
    session_resumed: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """Called when a new agent process continues the conversation of an earlier process."""
    after_runtime_exit: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """Called after each turn, with its output (cut at a limit), side effects and usage."""
    agent_end: Annotated[tuple[str, ...], WITH_WORKERS] = ()
    """Called after each turn, with its id, success and duration."""
