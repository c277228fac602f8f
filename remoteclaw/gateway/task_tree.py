"""The tasks and branches that work for a session, as the gateway and the command line show them."""

from remoteclaw.bridge.task_lines import doing_of
from remoteclaw.fleet.task_tree import WorkBelow
from remoteclaw.messages import SessionKey
from remoteclaw.tools.tasks import TreeResult, WorkItem


def tree_of(session_key: str, below: WorkBelow) -> TreeResult:
    """Return what works for a session; only operators may see all of it."""
    keys = {SessionKey.parse(session_key).sid: session_key}
    keys |= {item.session.sid: str(item.session) for item in below.items}
    return TreeResult(
        session_key=session_key,
        at_ms=below.at_ms,
        work=tuple(
            WorkItem.of(
                item,
                run_id=item.run,
                session_key=str(item.session),
                parent=keys.get(item.parent, item.parent),
                agent=item.session.agent,
                seconds=item.age_ms / 1000,
                doing=doing_of(item) or None,
                said=item.said or None,
                progress=item.progress or None,
            )
            for item in below.items
        ),
        left_out=below.left_out,
    )
