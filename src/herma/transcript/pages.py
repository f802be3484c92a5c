"""Transcripts for people to keep: Markdown, and one web page that needs nothing else (no scripts, no requests)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html import escape

from herma.transcript.export import Told
from herma.transcript.wording import called, words_of
from herma.types import Message, SessionInfo

Conversation = tuple[Told, Iterable[Message]]
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_TICKS = re.compile("`{3,}")
_TOOLS = ("tool", "function")

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
header { margin: 3rem 0 1.5rem; border-bottom: 1px solid #8886; }
header p, time, summary, .note { opacity: .7; font-size: .85rem; }
article { margin: 1.2rem 0; padding: .1rem 0 .1rem 1rem; border-left: .25rem solid #8886; }
article.user { border-color: #3b7dd8; }
article.assistant { border-color: #2f9e63; }
article.hidden { opacity: .6; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: .95rem; margin: 0 0 .3rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; font: inherit; }
.tool pre, details pre { font: .85rem/1.45 ui-monospace, monospace; background: #8881; padding: .6rem; }
""".strip()


# ── Markdown ──


def markdown(conversations: Iterable[Conversation]) -> Iterator[str]:
    """The pieces of a Markdown file, in order; nothing is read before its turn."""
    for number, (one, messages) in enumerate(conversations):
        if number:
            yield "\n---\n\n"
        yield f"# {_plain(_name(one.session))}\n\n{_plain(' · '.join(_facts(one.session)))}\n"
        for message in messages:
            yield _markdown_message(message)


def _markdown_message(message: Message) -> str:
    pieces = [f"\n## {_plain(_who(message))} · {moment(message.timestamp)}\n"]
    text = _plain(words_of(message.content)).strip("\n")
    if text.strip():
        pieces.append(_fenced(text) if message.role in _TOOLS else f"\n{text}\n")
    for name, arguments in (called(call, indent=2) for call in message.tool_calls):
        pieces.append(f"\nCalls `{_plain(name)}`:\n{_fenced(_plain(arguments))}")
    return "".join(pieces)


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any inside it."""
    fence = "`" * max([3, *(len(run) + 1 for run in _TICKS.findall(text))])
    return f"\n{fence}\n{text}\n{fence}\n"


# ── the web page ──


def web_page(conversations: Iterable[Conversation], title: str) -> Iterator[str]:
    """The pieces of the page, in order; nothing is read before its turn."""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_html(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
    )
    for one, messages in conversations:
        facts = _html(" · ".join(_facts(one.session)))
        yield f'<header><h1 dir="auto">{_html(_name(one.session))}</h1><p>{facts}</p></header>\n'
        for message in messages:
            yield _article(message)
    yield "</body>\n</html>\n"


def _article(message: Message) -> str:
    role = "tool" if message.role in _TOOLS else message.role
    kind = f"{role} hidden" if message.hidden else role
    heading = f"<h2>{_html(_who(message))} <time>{moment(message.timestamp)}</time></h2>"
    pieces = [f'<article class="{_html(kind)}">{heading}\n']
    if message.reasoning:
        pieces.append(_folded("thinking", message.reasoning))
    text = words_of(message.content).strip("\n")
    if text.strip():
        body = f'<pre dir="auto">{_html(text)}</pre>\n'
        long = role == "tool" and len(text) > 1_000
        pieces.append(f"<details><summary>{len(text):,} characters</summary>{body}</details>\n" if long else body)
    pieces += [
        _folded(f"calls {name}", arguments)
        for name, arguments in (called(call, indent=2) for call in message.tool_calls)
    ]
    return "".join([*pieces, "</article>\n"])


def _folded(title: str, text: str) -> str:
    return f'<details><summary>{_html(title)}</summary><pre dir="auto">{_html(text)}</pre></details>\n'


# ── what both show ──


def moment(at: float) -> str:
    """A time for people, the same on every machine; seconds where no calendar has it."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f}"


def _name(session: SessionInfo) -> str:
    return session.title or session.preview or session.id


def _facts(session: SessionInfo) -> list[str]:
    project = f"project {session.scope.project}" if session.scope.project else ""
    goes_on = f"{session.reason} of {session.parent}" if session.parent else ""
    facts = [session.id, session.source, moment(session.started), session.model or "", project, goes_on]
    return [fact for fact in facts if fact]


def _who(message: Message) -> str:
    who = f"{message.role}: {message.tool_name}" if message.tool_name and message.role in _TOOLS else message.role
    return f"{who} ({message.hidden})" if message.hidden else who


def _html(text: str) -> str:
    return escape(_plain(text))


def _plain(text: str) -> str:
    """The text with control characters spelt out: some cannot stand in a page, all could steer a terminal."""
    spelt = text.replace("\r\n", "\n")
    return _UNSAFE.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if match[0] < "\u0100" else f"\\u{ord(match[0]):04x}", spelt
    )
