"""The limit of the scripted model: requests beyond it are refused, as the real APIs do."""

from dataclasses import dataclass

from tests.support.model_server.conversation import Conversation, Plan


@dataclass(slots=True)
class Limit:
    """What the model refuses, and how."""

    size: int = 0
    """A larger request is refused, in bytes; 0 for no limit."""
    users: int = 0
    """A conversation with more of the user's messages is refused; 0 for no limit."""
    about: str = "context"
    """What the refusal is about, as in `HTTP:400:context`; empty for an invalid request."""
    in_stream: bool = False
    """Whether the refusal comes within the stream."""
    summaries: int = 0
    """How many requests for a summary are refused; further ones are answered, whatever their size.
    """
    busy: int = 0
    """For how many requests for a summary the model is busy, before any is refused or answered."""
    summary_s: float = 0.0
    """How long each request for a summary takes that is answered, in seconds."""

    away: str = ""
    """The API or the model, by the beginning of its name, whose plan is used up; empty for none."""
    away_s: int = 3600
    """After how many seconds the plan's limit ends."""

    def refuse(
        self, conversation: Conversation, size: int, *, api: str, is_summary: bool
    ) -> Plan | None:
        """Return the refusal of a request of `size` bytes; None if it is within the limit."""
        if self.away and any(name.startswith(self.away) for name in (api, conversation.model)):
            return Plan(status=429, about="limit", retry_after_s=str(self.away_s))
        if is_summary and self.busy:
            self.busy -= 1
            return Plan(status=503)
        if is_summary:
            is_refused = self.summaries > 0
            self.summaries -= is_refused
        else:
            is_refused = 0 < self.size < size or 0 < self.users < len(conversation.users)
        plan = Plan(status=400, about=self.about, fails_in_stream=self.in_stream)
        return plan if is_refused else None
