"""Read files of no single program: OpenAI-style messages as JSON, and conversations saved as Markdown or text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from herma.importers import base

_ROLES = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "gpt", "model"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "tool_result"), "tool"),
}
_TIMES = ("timestamp", "created_at", "create_time", "time", "ts", "date")


class Messages(base.FormatReader):
    """One message a line, a list of them a line, or one JSON list."""

    name = "messages"
    title = "OpenAI-style messages"
    patterns = ("**/*.jsonl", "**/*.json", "**/*.jsonl.zst")

    def files(self, place: Path) -> Iterator[Path]:
        return (file for file in super().files(place) if file.name != "summary.json")

    def recognises(self, file: Path, head: bytes) -> bool:
        if file.suffix == ".json":
            return b'"role"' in head and b'"content"' in head
        found = base.records_of(head)
        return any(isinstance(one.get("messages"), list) or (_role(one) and ("content" in one or "text" in one))
                   for one in found)  # fmt: skip

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        if file.suffix == ".json":
            with base.opened(file) as stream:
                yield from messages_in(_described(file), log.json_array(stream), log)
        else:
            yield from messages_in(_described(file), log.json_lines(file), log)


def messages_in(about: base.ImportedSession, records: Iterator[Any], log: base.ReadLog) -> Iterator[base.Item]:
    """Yield the messages of a session, and those of others that the records name."""
    yield about
    for given in records:
        record = base.mapping(given)
        listed = record.get("messages") or record.get("conversations")
        if isinstance(listed, list):
            name = base.string(base.first_of(record, "id", "session_id", "conversation_id"))
            chat = name or f"{about.id}-{log.line}"
            yield base.ImportedSession(
                chat,
                title=base.string(record.get("title")),
                model=base.string(record.get("model")),
                started=base.moment(base.first_of(record, *_TIMES)),
            )
            for number, message in enumerate(listed, 1):
                yield from message_in(chat, f"{number} {base.digest(message)}", base.mapping(message), log)
            continue
        named = base.string(base.first_of(record, "session_id", "conversation_id", "thread_id"))
        yield from message_in(named or about.id, f"{log.line} {base.digest(record)}", record, log)


def _described(file: Path) -> base.ImportedSession:
    """Return a session for the file, with what a `summary.json` beside it says, as Grok writes it."""
    about = base.json_beside(file.with_name("summary.json"))
    place = base.mapping(about.get("info"))
    return base.ImportedSession(
        base.string(place.get("id")) or f"{file.name.partition('.')[0]}-{base.digest(str(file.absolute()))}",
        title=base.string(base.first_of(about, "generated_title", "session_summary")),
        model=base.string(about.get("current_model_id")),
        folder=base.string(place.get("cwd")),
        branch=base.string(about.get("head_branch")),
        started=base.moment(about.get("created_at")),
    )


def _role(record: dict[str, Any]) -> str:
    return _ROLES.get(base.string(base.first_of(record, "role", "from", "sender", "type")).lower(), "")


def message_in(
    session: str, key: str, record: dict[str, Any], log: base.ReadLog, at: float = 0.0, said_by: str = ""
) -> Iterator[base.Item]:
    """Yield what a message or an item of a conversation holds, in the shapes of OpenAI and Anthropic.

    `at` and `said_by` are its time and role where the record does not say, or says otherwise.
    """
    kind, at = base.string(record.get("type")), at or base.moment(base.first_of(record, *_TIMES))
    if model := base.string(base.first_of(record, "model", "model_id")):
        yield base.ImportedSession(session, model=model)
    role = said_by or _role(record)
    content = base.first_of(record, "content", "text", "value", "result", "output", "tools", "error")
    if kind.endswith("_call"):
        yield from base.messages_of(session, key, "assistant", base.Parts(calls=(_call_of(record, key),)), at)
    elif kind == "reasoning":
        thought = base.parts_of(base.first_of(record, "summary", "content"), log)
        if text := "\n".join(filter(None, (thought.thinking, thought.text))):
            yield from base.messages_of(session, key, "assistant", base.Parts(thinking=text), at)
        else:
            log.skip("reasoning without text")
    elif role == "tool" or kind.endswith("_output"):
        name = base.string(base.first_of(record, "name", "tool_name", "toolName"))
        text = (base.parts_of(content, log).text if isinstance(content, list) else "") or base.result_text(content)
        result = base.ToolResult(base.call_id_of(record), name, text)
        yield from base.messages_of(session, key, "tool", base.Parts(results=(result,)), at)
    elif role:
        parts = base.parts_of(content, log)
        calls = [_call_of(base.mapping(call), "") for call in base.items(record.get("tool_calls"))]
        aside = base.string(base.first_of(record, "reasoning", "reasoning_content", "thinking"))
        role = "system" if record.get("synthetic_reason") else role
        whole = base.Parts(parts.text, parts.thinking or aside, (*parts.calls, *calls), parts.results)
        yield from base.messages_of(session, key, role, whole, at, finish=base.string(record.get("finish_reason")))
    else:
        log.meet_unknown(kind or "record " + ",".join(sorted(record))[:40])


def _call_of(record: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the call of a tool in a record; `key` serves as its id where it has none."""
    inner = base.mapping(record.get("function")) or base.mapping(record.get("kind")) or record
    name = base.first_of(inner, "name", "toolName", "tool_type") or base.string(record.get("type")).removesuffix(
        "_call"
    )
    given = base.first_of({**inner, **record}, "arguments", "input", "action", "parameters", "query")
    return base.tool_call(base.call_id_of(record) or key, name, given)


# ── Markdown and text ──

_USER = {"you", "user", "human", "me", "i", "prompt", "question", "anonymous"}
_ASSISTANT = {
    "assistant", "chatgpt", "claude", "gemini", "ai", "bot", "gpt", "copilot", "cursor", "model", "answer", "response",
    "agent", "grok", "deepseek", "qwen", "kimi", "mistral", "llama", "perplexity", "codex",
}  # fmt: skip
_CLOCK = r"(?P<time>\d{1,2}:\d{2}(?::\d{2})?(?:\s?[AaPp]\.?[Mm]\.?)?)(?:\s?UTC)?"
_DAY = r"(?P<day>\d{4}-\d{2}-\d{2}|\d{1,2}[/.]\d{1,2}[/.]\d{2,4})"
_NAME = r"(?P<name>[^\s*:<>\[\]()#][^*:<>\[\]()\n]{0,48}?)"
_TURNS = [
    re.compile(pattern)
    for pattern in (
        rf"#{{1,4}}\s+(?:\W{{1,3}}\s)?\**{_NAME}\**:?\s*(?:\((?:{_DAY}[ T,]*)?(?:{_CLOCK})?\))?\s*$",
        rf"\*\*{_NAME}:\*\*\s*(?P<text>.*)$",
        rf"\*\*{_NAME}\*\*:\s*(?P<text>.*)$",
        rf"\*\*{_NAME}\*\*\s*\((?:{_DAY}[ T,]*)?{_CLOCK}\):\s*(?P<text>.*)$",
        rf"\*\*{_NAME}\*\*\s+{_CLOCK}\s*[-–—]\s*(?P<text>.*)$",
        rf"\*\*\[(?:{_DAY}[ T,]*)?{_CLOCK}\]\s*(?:\W\s*)?{_NAME}:\*\*\s*(?P<text>.*)$",
        rf"\[{_DAY}[ T,]+{_CLOCK}\]\s*{_NAME}:\s(?P<text>.*)$",
        rf"\[{_CLOCK}\]\s*(?P<name>@?[^\s:]+(?::[^\s:]+)?):\s(?P<text>.*)$",
        rf"{_DAY}[ T,]+{_CLOCK}\s+-\s+{_NAME}:\s(?P<text>.*)$",
        rf"{_NAME}\s\({_DAY}[ T,]+{_CLOCK}\):\s(?P<text>.*)$",
        rf"{_NAME},\s{_DAY}[ T,]+{_CLOCK}:\s(?P<text>.*)$",
        rf"(?:{_CLOCK}\s+)?<(?P<name>[^\s<>/][^<>\n]{{0,30}})>\s(?P<text>.*)$",
        r"(?P<name>You|User|Human|Me|Assistant|ChatGPT|Claude|Gemini|AI|Copilot|System)(?: said)?:\s*(?P<text>.*)$",
    )
]
_DATED = re.compile(r"#{1,6}\s+(\d{4}-\d{2}-\d{2})\s*$")
_FRONT = re.compile(r"\A---\n(.{0,4000}?)\n---\n", re.DOTALL)


class MarkdownTurn(NamedTuple):
    role: str
    text: str
    line: int
    at: float


class Markdown(base.FormatReader):
    name = "markdown"
    title = "Markdown log"
    grows = False
    patterns = ("**/*.md", "**/*.markdown", "**/*.txt")

    def recognises(self, file: Path, head: bytes) -> bool:
        return file.suffix in (".md", ".markdown", ".txt") and len(turns_of(head.decode("utf-8", "replace"))) > 1

    def read(self, file: Path, log: base.ReadLog) -> Iterator[base.Item]:
        with file.open("rb") as stream:
            text = stream.read(base.MAX_LINE).decode("utf-8-sig", "replace").replace("\r\n", "\n")
            if stream.read(1):
                log.meet_broken("text after 64 MB")
        turns = turns_of(text)
        if len(turns) < 2:
            log.meet_broken("no conversation was found in it")
            return
        front = dict(line.split(":", 1) for line in _header(text).splitlines() if ":" in line)
        heading = re.search(r"^# +(.+)$", text[: text.find(turns[0].text) + 1], re.MULTILINE)
        session = f"{file.stem}-{base.digest(str(file.absolute()))}"
        title = front.get("title", "").strip().strip("\"'") or (heading[1] if heading else "")
        yield base.ImportedSession(session, title=title, model=front.get("model", "").strip())
        if turns[0].line > 1:
            log.skip("lines before the first turn")
        for number, turn in enumerate(turns):
            log.line = turn.line
            key = f"{number} {base.digest(turn.role, turn.text)}"
            yield base.ImportedMessage(session, (key,), turn.role, turn.text, turn.at)


def _header(text: str) -> str:
    found = _FRONT.match(text)
    return found[1] if found else ""


def turns_of(text: str) -> list[MarkdownTurn]:
    """Divide a text into turns. Headings and names inside blocks of code begin none.

    Names that are neither the person's nor an assistant's are kept before what they said.
    """
    front = _header(text)
    dated = re.search(r"^date: *['\"]?(\d{4}-\d{2}-\d{2})", front, re.MULTILINE)
    day = dated[1] if dated else ""
    form: re.Pattern[str] | None = None
    found: list[tuple[str, list[str], int, float]] = []
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if not fenced and (dated := _DATED.match(line)):
            day = dated[1]
            continue
        begun = None if fenced or len(line) > 100_000 else _begins(line, form)
        if begun is None:
            if found:
                found[-1][1].append(line)
            continue
        form, match = begun
        given = match.groupdict()
        day = _date(given.get("day") or "") or day
        role, spoken = _speaker(given["name"]), given.get("text") or ""
        named = "" if role in ("user", "assistant", "system") else f"{given['name'].strip()}: "
        found.append((role or "user", [named + spoken], number, _moment(day, given.get("time") or "")))
    turns = [MarkdownTurn(role, "\n".join(lines).strip(), number, at) for role, lines, number, at in found]
    return [turn for turn in turns if turn.text]


def _begins(line: str, form: re.Pattern[str] | None) -> tuple[re.Pattern[str], re.Match[str]] | None:
    """Return how a line begins a turn. One file keeps to one form; headings must name a known speaker."""
    for pattern in [form] if form else _TURNS:
        match = pattern.match(line)
        if match is None:
            continue
        known = _speaker(match["name"])
        if pattern is _TURNS[0] and not known:
            continue
        if form is None and pattern in _TURNS[1:3] and not known and not _is_name(match["name"]):
            continue
        return pattern, match
    return None


def _speaker(name: str) -> str:
    words = name.lower().strip().removesuffix(" said").split()
    if not words:
        return ""
    if words[0] in _USER and len(words) <= 2:
        return "user"
    if words[0] in _ASSISTANT or words[-1] in _ASSISTANT:
        return "assistant"
    return "system" if words == ["system"] else ""


def _is_name(name: str) -> bool:
    """Return whether it looks like a person's name: one to three words that begin with a capital or a number."""
    words = name.split()
    return len(words) in (2, 3) and all(word[0].isupper() or word[0].isdigit() for word in words)


def _date(text: str) -> str:
    """Return a day as 2024-03-15. With slashes the day stands first where it can be no month."""
    if "-" in text or not text:
        return text
    first, second, year = (int(part) for part in re.split(r"[/.]", text))
    month, day = (second, first) if first > 12 or "." in text else (first, second)
    return f"{year + 2000 if year < 100 else year:04}-{month:02}-{day:02}"


def _moment(day: str, clock: str) -> float:
    if not day:
        return 0.0
    try:
        at = datetime.fromisoformat(day).replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    found = re.match(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s?([AaPp]?)", clock)
    if found:
        hour = int(found[1]) % 12 + 12 * (found[4].lower() == "p") if found[4] else int(found[1])
        at += timedelta(hours=hour, minutes=int(found[2]), seconds=int(found[3] or 0))
    return at.timestamp()
