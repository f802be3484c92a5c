"""Keep a framework's own items in a transcript, and recall what is known for a question.

An item is any JSON value. It is stored whole in one message, beside the text that Herma shows and searches, and is
never sent to a model by a session of Herma.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from herma.errors import HermaError, UsageError
from herma.prompt.fence import fence
from herma.transcript.messages import FOREIGN_ITEM, LONGEST_ID, words_of
from herma.types import Add, Applied, Author, Duplicate, Origin, Scope, Staged, Who

if TYPE_CHECKING:
    from herma.app import Herma

TEXT_LIMIT = 1_000
"""Characters of one recalled message."""


def scope_of(app: Herma, user: str | None = None, project: str | None = None) -> Scope:
    """Return the scope of a user and a project in the opened profile."""
    return Scope(app.settings.profile, project or "", user or "")


class StoredItem(NamedTuple):
    """An item with the message that holds it."""

    message: int
    item: Any
    at: float


class ItemLog:
    """The items of one framework session, in the order in which they were added."""

    def __init__(self, app: Herma, source: str, key: str, scope: Scope) -> None:
        """`key` is the session's id in the framework. The session is created with its first item."""
        self._app = app
        self._source = source
        self._scope = scope
        self.session_id = session_id_of(source, key, scope.user)

    def read(self, after: int | None = None) -> list[StoredItem]:
        """Return the items behind the message `after`, all by default."""
        if self._app.transcripts.get(self.session_id) is None:
            return []
        stored = self._app.transcripts.messages(self.session_id, after=after)
        return [
            StoredItem(one.id, one.extra[FOREIGN_ITEM], one.timestamp) for one in stored if FOREIGN_ITEM in one.extra
        ]

    def append(self, items: Sequence[tuple[Any, Mapping[str, Any]]]) -> list[int]:
        """Add items, each with the message that says the same in words. All of them are on disk, or none."""
        if not items:
            return []
        self._create()
        messages = [{**message, FOREIGN_ITEM: item} for item, message in items]
        ids = self._app.transcripts.append(self.session_id, messages)
        self._app.index.written(len(ids))
        return list(ids)

    def cut(self, message: int) -> None:
        """Take back a message and all behind it. They stay in the transcript, hidden."""
        self._app.transcripts.rewind(self.session_id, message, any_role=True)

    def _create(self) -> None:
        transcripts = self._app.transcripts
        if transcripts.get(self.session_id) is not None:
            return
        try:
            transcripts.start(self._source, session_id=self.session_id, scope=self._scope)
        except HermaError:
            if transcripts.get(self.session_id) is None:  # else another program created it at this moment
                raise


def calling(text: str | None, calls: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Return the message of an assistant that calls tools, each given as id, name and arguments."""
    made = [{"id": id_, "type": "function", "function": {"name": name, "arguments": a}} for id_, name, a in calls]
    return {"role": "assistant", "content": text, "tool_calls": made}


def session_id_of(source: str, key: str, user: str = "") -> str:
    """Return the id of the Herma session for a session of another program; different users never share one."""
    if not isinstance(key, str) or not key:
        raise UsageError(f"A session id is a text that is not empty, not {key!r}.")
    plain = f"{source}-{key}"
    if not user and len(plain) <= LONGEST_ID and plain.isprintable() and not any(map(str.isspace, plain)):
        return plain
    digest = blake2b(json.dumps([source, user, key]).encode("utf-8", "replace"), digest_size=12).hexdigest()
    return f"{source}-{digest}"


class RecalledMessage(NamedTuple):
    """One thing that was said before, with where it stands."""

    text: str
    role: str
    session: str
    message: int
    at: float
    score: float


def recall(
    app: Herma, question: str, *, scope: Scope, limit: int = 5, current: str | None = None, project: str | None = None
) -> list[RecalledMessage]:
    """Return the messages of past sessions that fit a question, the best first. Untrusted: fence it for a model.

    All projects of the user are searched, unless one is given.
    """
    if not question.strip():
        return []
    found = app.search(question, level="message", limit=limit, scope=scope, current_session=current, project=project)
    recalled = []
    for hit in found.hits:
        if project and (hit.session is None or hit.session.scope.project != project):
            continue  # a search that finds nothing looks without its filter
        said = next((one for one in app.transcripts.around(hit.message_id, 0) if one.id == hit.message_id), None)
        text = words_of(said.content).strip() if said else hit.snippet
        if len(text) > TEXT_LIMIT:
            text = text[:TEXT_LIMIT].rstrip() + " …"
        recalled.append(RecalledMessage(text, hit.role, hit.session_id, hit.message_id, hit.timestamp, hit.score))
    return recalled


def keep_entry(app: Herma, text: str, scope: Scope) -> None:
    """Add an entry to MEMORY.md. Raise if it is refused; one that needs a person's approval waits in the inbox."""
    outcome = app.memory.apply("memory", Add(text), scope=scope, author=Author(Who.TOOL, Origin.AGENT_CONCLUDED))
    if not isinstance(outcome, Applied | Duplicate | Staged):
        raise UsageError(outcome.message)


def known_text(app: Herma, question: str, *, scope: Scope, limit: int = 5) -> str:
    """Return curated memory, and what past sessions say about a question."""
    past = recalled_text(app, question, scope=scope, limit=limit)
    return "\n\n".join(filter(None, (app.memory.load(scope).text, past)))


def recalled_text(app: Herma, question: str, *, scope: Scope, limit: int = 5, current: str | None = None) -> str:
    """Return what past sessions say about a question, fenced as data; "" if nothing fits."""
    found = recall(app, question, scope=scope, limit=limit, current=current)
    return fence("\n\n".join(f"[{one.role}, session {one.session}] {one.text}" for one in found))
