"""The sentences about a failed turn, for the person in the chat and for one who can fix it."""

from dataclasses import dataclass

from remoteclaw.errors.category import ErrorCategory

__all__ = ["Overdue", "Remedy", "sentence"]

#: How one who can use the computer finds the reason; others can pass it on.
LOOK_UP = "`remoteclaw sessions trace {reference}` on its computer shows the reason"

_SENTENCES = {
    ErrorCategory.RETRYABLE: "The model behind {agent} is busy right now. "
    "Your message was not answered: send it again in a minute.",
    ErrorCategory.UNREACHABLE: "{agent} can't reach its model over the network. "
    "Your message was not answered: send it again when the connection is back.",
    ErrorCategory.USAGE_LIMIT: "{agent}'s account has used up what its plan allows for now. "
    "Your message was not answered: send it again when the limit is lifted.",
    ErrorCategory.UNKNOWN_MODEL: "{agent} is set to a model that its account can't use. "
    "Its operator has to correct `{setting}` under [agents.{agent}]; then send your message again.",
    ErrorCategory.CONTEXT_OVERFLOW: "Your message is too long for {agent}'s model. "
    "Send it again in parts.",
    ErrorCategory.UNFIT_IMAGE: "{agent}'s model can't read a picture in this conversation. "
    "Send your message again, without the picture or with another one; /new begins an empty "
    "conversation.",
    ErrorCategory.INVALID_REQUEST: "{agent}'s model refuses this conversation, and sending your "
    "message again won't change that. /new begins an empty one; if that fails, too, "
    f"{LOOK_UP}.",
    ErrorCategory.AUTH: "{agent} isn't signed in to its model. "
    "Its operator has to sign in again on its computer; then send your message again.",
    ErrorCategory.BILLING: "{agent}'s account has no credit or quota left. "
    "Its operator has to top it up; then send your message again.",
    ErrorCategory.SESSION_EXPIRED: "{agent} no longer has this conversation. "
    "Send your message again to start a new one.",
    ErrorCategory.NOT_INSTALLED: "{agent} can't be started on its computer. "
    "There, `remoteclaw sessions trace {reference}` shows the reason.",
    ErrorCategory.TIMEOUT: "{agent} took too long. Ask again, perhaps for a smaller step.",
    ErrorCategory.ABORTED: "Stopped.",
    ErrorCategory.ANSWER_TOO_LONG: "{agent}'s answer became longer than a million characters, so "
    "it was stopped. Ask for less at once.",
    ErrorCategory.SUPERSEDED: "(I left this for your next message.)",
    ErrorCategory.DIED: "{agent} stopped working in the middle of your message. Part of the work "
    "may be done: check before you send it again.",
    ErrorCategory.INTERRUPTED: "{agent} was cut off while it worked on your message, more than "
    "once, and it isn't tried again. Part of the work may be done: check before you send it again.",
    ErrorCategory.UNREADABLE: "Your message can't be read by the worker that got it, so {agent} "
    "did not see it: send it again. If that fails too, RemoteClaw has to be updated.",
    ErrorCategory.FATAL: "{agent} failed and couldn't finish your message. "
    f"Send it again; if it fails again, {LOOK_UP}.",
}


#: The sentences used if the time is known at which the provider accepts requests again.
_UNTIL = {
    ErrorCategory.RETRYABLE: "The model behind {agent} is busy. "
    "Your message was not answered: send it again after {until}.",
    ErrorCategory.USAGE_LIMIT: "{agent}'s account has used up what its plan allows until {until}. "
    "Your message was not answered: send it again then.",
}
#: The sentence about a model that a person has chosen for the session; in it, the model is code.
_CHOSEN_MODEL = (
    "{agent}'s account can't use the model {model}, which was chosen here with /model. "
    "`/model default` goes back to the usual one; then send your message again."
)
#: The sentences about an agent that had said or done something before it failed.
_BROKE_OFF = {
    ErrorCategory.CONTEXT_OVERFLOW: "{agent} broke off: this conversation has become too long for "
    'its model. Part of the work may be done: write "go on" to continue.',
    ErrorCategory.UNFIT_IMAGE: "{agent} broke off: its model can't read a picture. "
    'Part of the work may be done: write "go on" to continue without it.',
    ErrorCategory.INVALID_REQUEST: "{agent} broke off: its model refuses to continue this "
    'conversation as it is. Part of the work may be done: write "go on" to continue.',
}
#: The sentences about an answer of which the rest is missing. They never ask to send the message
#: again: the agent has read it.
_BROKEN_OFF = {
    ErrorCategory.RETRYABLE: "The answer above breaks off, because the model behind {agent} is "
    "busy. Ask it to go on {then}.",
    ErrorCategory.UNREACHABLE: "The answer above breaks off, because {agent} lost the connection "
    "to its model. Ask it to go on.",
    ErrorCategory.USAGE_LIMIT: "The answer above breaks off, because {agent}'s account has used up "
    "what its plan allows for now. Ask it to go on {then}.",
    ErrorCategory.FATAL: "{agent} failed and couldn't finish your message: the answer above breaks "
    f"off. Ask it to go on; if it fails again, {LOOK_UP}.",
}
#: When to ask again, if the time is not known.
_THEN = {
    ErrorCategory.RETRYABLE: "in a minute",
    ErrorCategory.USAGE_LIMIT: "when the limit is lifted",
}
#: The sentences about an agent that exceeded a time limit, by the name of the limit's setting.
_OVERDUE = {
    "start_s": "{agent} did not start within {span}. Send your message again; if it fails again, "
    f"{LOOK_UP}. (Limit: start_s.)",
    "stall_s": "{agent} gave no sign of life for {span}, so it was stopped. Ask again; part of the "
    "work may be done. (Limit: stall_s.)",
    "turn_s": "{agent} took longer than {span} in all, so it was stopped. Ask again, perhaps for a "
    "smaller step. (Limit: turn_s.)",
}


#: The failures that people and RemoteClaw's limits cause, for which the CLI has no reason to give.
_WITHOUT_REASON = (
    ErrorCategory.ABORTED,
    ErrorCategory.SUPERSEDED,
    ErrorCategory.INTERRUPTED,
    ErrorCategory.TIMEOUT,
    ErrorCategory.ANSWER_TOO_LONG,
)


@dataclass(frozen=True, slots=True)
class Remedy:
    """The details of a failure for a person who can fix it, as parts of the sentence about it."""

    reason: str = ""
    """The CLI's reason, on one line and without secrets."""
    what: str = ""
    """What happened, without the full stop; empty keeps the first part of the usual sentence."""
    fix: str = ""
    """What to do; empty keeps the second part of the usual sentence."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """The time limit that a turn exceeded."""

    setting: str
    limit_s: float

    @property
    def detail(self) -> str:
        """The limit as text for operators."""
        return f"the limit {self.setting} = {self.limit_s:g} was passed"


def sentence(
    category: ErrorCategory,
    *,
    agent: str,
    reference: str,
    until: str = "",
    overdue: Overdue | None = None,
    remedy: Remedy | None = None,
    has_begun: bool = False,
    breaks_off: bool = False,
    model: str = "",
    model_setting: str = "model",
) -> str:
    """Return the message about a failed turn for the person in the chat.

    `reference` is the turn's id, which `remoteclaw sessions trace` looks up; it is left out if
    nothing went wrong (a turn that the person stopped). `until` is the time at which the provider
    accepts requests again, as text. A `remedy` is given if the person can fix the failure.
    `has_begun` tells that the agent has said or done something before it failed, and `breaks_off`
    that the beginning of its answer was delivered. `model` is the model that was asked, as code,
    and `model_setting` says where it was chosen: `/model`, or a setting of the agent.
    """
    if breaks_off and category in _BROKEN_OFF:
        then = f"after {until}" if until else _THEN.get(category, "")
        text = _BROKEN_OFF[category].format(agent=agent, then=then, reference=reference)
        what, _, fix = text.partition(". ")
        reason = f" ({remedy.reason})" if remedy and remedy.reason else ""
        return f"{what}{reason}. {fix} ({reference})"
    template = _SENTENCES[category]
    if has_begun:
        template = _BROKE_OFF.get(category, template)
    if category is ErrorCategory.UNKNOWN_MODEL and model_setting == "/model":
        template = _CHOSEN_MODEL
    if category is ErrorCategory.TIMEOUT and overdue:
        template = _OVERDUE[overdue.setting]
    elif until:
        template = _UNTIL.get(category, template)
    span = _span(overdue.limit_s) if overdue else ""
    text = template.format(
        agent=agent,
        reference=reference,
        until=until,
        span=span,
        model=model,
        setting=model_setting,
    )
    if remedy and category not in _WITHOUT_REASON:
        what, _, fix = text.partition(". ")
        reason = f" ({remedy.reason})" if remedy.reason else ""
        text = f"{remedy.what or what}{reason}. {remedy.fix or fix}"
    if category in (ErrorCategory.ABORTED, ErrorCategory.SUPERSEDED):
        return text
    return f"{text} ({reference})"


def _span(seconds: float) -> str:
    for unit, size in (("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size and seconds % size == 0:
            return f"{seconds / size:g} {unit}s"
    return f"{seconds:g} s"
