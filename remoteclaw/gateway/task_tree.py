"""The tasks and branches of a session, in the form that clients and the command line receive."""

from remoteclaw.bridge.task_lines import doing_of
from remoteclaw.fleet.sessions.task_tree import TaskTree
from remoteclaw.messages import SessionKey
from remoteclaw.tools.tasks import TreeResult, WorkItem


def tree_of(session_key: str, tree: TaskTree) -> TreeResult:
    """Return a session's tasks and branches. Only operators may see all of them."""
    keys = {SessionKey.parse(session_key).sid: session_key}
    keys |= {item.session.sid: str(item.session) for item in tree.items}
    return TreeResult(
        session_key=session_key,
        at_ms=tree.at_ms,
        work=tuple(
            WorkItem.of(
                item,
                run_id=item.run,
                session_key=str(item.session),
                parent=keys.get(item.parent, item.parent),
                agent=item.session.agent,
                seconds=item.age_ms / 1000,
                doing=doing_of(item) or None,
                said=item.last_text or None,
                progress=item.progress or None,
            )
            for item in tree.items
        ),
        left_out=tree.left_out,
    )
