"""A check for whole test suites: in every session, what was sent to the model is never changed afterwards.

    @pytest.fixture(autouse=True)
    def prefixes():
        with watch_prefixes():
            yield

Rewinding shortens a conversation, `reload()` builds its prompt anew, and after a compression it goes on with messages
that stand for it: the only moves besides growing that a session makes. Cache marks are no part of what is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from herma.prompt.fence import sanitize
from herma.session import Session
from herma.transcript.replay import as_sent
from herma.transcript.wire import text_of


@contextmanager
def watch_prefixes() -> Iterator[None]:
    """Check every request of every session inside the block. `AssertionError` at the first that breaks a rule."""
    sent: WeakKeyDictionary[Session, list[str]] = WeakKeyDictionary()
    before_model, rewind, reload = Session.before_model, Session.rewind, Session.reload
    continue_with = Session.continue_with

    def watched(session: Session, *args: Any, **options: Any) -> Any:
        request = before_model(session, *args, **options)
        now = [_canonical(message) for message in request]
        earlier = sent.get(session, [])
        for index, (was, is_) in enumerate(zip(earlier, now, strict=False)):
            assert was == is_, (
                f"message {index} of session {session.id} was changed after it had been sent:\n{was}\n{is_}"
            )
        assert len(now) >= len(earlier), f"session {session.id} lost messages that had been sent"
        sent[session] = now
        check_stored(session, request)
        return request

    def rewound(session: Session, turns: int = 1) -> str:
        text = rewind(session, turns)
        sent[session] = sent.get(session, [])[: len(session.messages) + 1]
        return text

    def reloaded(session: Session) -> None:
        reload(session)
        if sent.get(session):
            sent[session][0] = _canonical({"role": "system", "content": session.system_prompt})

    def continued(session: Session, *args: Any, **options: Any) -> None:
        prompt, in_place = session.system_prompt, session.id
        continue_with(session, *args, **options)
        sent[session] = []
        assert session.id != in_place or session.system_prompt == prompt, "the prompt was changed in its place"

    setattr(Session, "before_model", watched)  # noqa: B010  a patch, and meant to be one
    setattr(Session, "rewind", rewound)  # noqa: B010
    setattr(Session, "reload", reloaded)  # noqa: B010
    setattr(Session, "continue_with", continued)  # noqa: B010
    try:
        yield
    finally:
        setattr(Session, "before_model", before_model)  # noqa: B010
        setattr(Session, "rewind", rewind)  # noqa: B010
        setattr(Session, "reload", reload)  # noqa: B010
        setattr(Session, "continue_with", continue_with)  # noqa: B010


def check_stored(session: Session, request: list[dict[str, Any]]) -> None:
    """Everything sent can be derived from what is stored, and no stored content holds a fence.

    In the same order; unless another program speaks in the session too: then each has an order of its own, in which its
    prefix only grows, and what the other has not finished is left out.
    """
    stored = {message.id: message for message in session.stored_messages()}
    known = [message.id for message in session.messages]
    kept = list(stored.values()) if len(known) == len(stored) and known == sorted(known) else map(stored.get, known)
    sent = [_canonical(as_sent(message)) if message is not None else "" for message in kept]
    assert sent == [_canonical(message) for message in request[1:]], (
        f"session {session.id} sent something that its transcript does not hold"
    )
    for message in stored.values():
        text = text_of(message.content)
        assert sanitize(text) == text, f"message {message.id} is stored with a fence in it"


def _canonical(message: dict[str, Any]) -> str:
    return json.dumps(_unmarked(message), sort_keys=True, ensure_ascii=False)


def _unmarked(message: dict[str, Any]) -> dict[str, Any]:
    """The message without cache marks; text that was made a part to carry one is text again."""
    parts = message.get("content")
    if not isinstance(parts, list) or not any(isinstance(part, dict) and "cache_control" in part for part in parts):
        return message
    bare = [{key: value for key, value in part.items() if key != "cache_control"} for part in parts]
    text = len(bare) == 1 and bare[0].keys() == {"type", "text"}
    return {**message, "content": bare[0]["text"] if text else bare}
