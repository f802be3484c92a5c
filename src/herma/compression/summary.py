"""The summary of a part of a conversation: its format, how it is made without a model, and how it is checked.

It has a fixed order of sections, each line with the messages it came from. It is written as Markdown for the model,
read back when it is brought up to date, and any of its lines leads to the originals: `[#12-18]` names messages by the
numbers that the transcript gave them.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from herma.errors import UsageError
from herma.prompt.fence import neutralize, sanitize
from herma.prompt.tool_results import trouble_lines
from herma.safety.scan import scan
from herma.transcript.log import Transcripts, origins
from herma.transcript.messages import OPENING, is_summary, text_of
from herma.transcript.transfer import Redactor

if TYPE_CHECKING:
    from herma.transcript.rows import MessageRows
    from herma.types import Finding, Message, SessionInfo

How: TypeAlias = Literal["pruned", "model", "extract"]
"""Only tool results were shortened; a model wrote the summary; it was made of the conversation's own words."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """Messages that stand for a conversation, and how they came about."""

    messages: tuple[Message, ...]
    how: How
    tokens_before: int
    tokens_after: int
    replaced: int = 0
    """Number of messages that the summary replaces."""
    kept: Mapping[str, float] = field(default_factory=dict)
    """The share of paths, identifiers, numbers and open tasks that the summary still names."""
    notes: tuple[str, ...] = ()
    """For people: failures on the way, and their replacements."""
    model: str = ""


@dataclass(frozen=True, slots=True)
class NotCompressed:
    """Say that nothing was changed, and why."""

    reason: str
    notes: tuple[str, ...] = ()


Compression: TypeAlias = Compressed | NotCompressed


class Expansion(NamedTuple):
    """A line of a summary, and the original messages that it was made from."""

    line: str
    messages: tuple[Message, ...]
    missing: tuple[int, ...] = ()
    """Numbers that it names and that are not there: deleted since, or of another conversation."""


Section: TypeAlias = Literal[
    "goal", "constraints", "done", "state", "decisions", "questions", "files", "errors", "next", "also"
]
HEADINGS: Mapping[Section, str] = MappingProxyType(
    {
        "goal": "Goal",
        "constraints": "Constraints and preferences",
        "done": "Done",
        "state": "State",
        "decisions": "Decisions",
        "questions": "Open questions",
        "files": "Files",
        "errors": "Errors and remedies",
        "next": "Next steps",
        "also": "Also mentioned",
    }
)
STANDS = "summary"
"""The `finish_reason` of a message that stands for others."""
REQUEST = "The user's last request, word for word"
_LINE = re.compile(r"^\s*+(?:[-*+•]|\d{1,3}[.)])\s++(?P<text>\S[^\n]*)$")
_SOURCES = re.compile(r"#?\d++(?:\s?[-–,]\s?#?\d++)*+")
_HEADING = re.compile(r"^\s{0,3}#{1,4}\s++(?P<title>\S[^\n]*)$")


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One statement, and the numbers of the messages it was made from."""

    text: str
    sources: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"- {self.text} [{ranges(self.sources, _SHOWN_RUNS)}]" if self.sources else f"- {self.text}"


@dataclass(frozen=True, slots=True)
class Summary:
    """The content of the part of a conversation that is no longer sent."""

    lines: Mapping[Section, tuple[SummaryLine, ...]] = field(default_factory=dict)
    request: str = ""
    """The user's last request that the summary covers, unchanged."""

    def of(self, section: Section) -> tuple[SummaryLine, ...]:
        return self.lines.get(section, ())

    def with_lines(self, section: Section, lines: Iterable[SummaryLine]) -> Summary:
        return replace(self, lines={**self.lines, section: tuple(lines)})

    def __bool__(self) -> bool:
        return any(self.lines.values()) or bool(self.request)


def render(summary: Summary) -> str:
    """Return the text that the model is shown."""
    parts = [OPENING, *filter(None, [render_lines(summary)])]
    if summary.request:
        parts.append(f"## {REQUEST}\n{_quoted(summary.request)}")
    return "\n\n".join(parts)


def render_lines(summary: Summary) -> str:
    """Return the sections alone."""
    return "\n\n".join(
        "\n".join([f"## {heading}", *map(str, lines)])
        for section, heading in HEADINGS.items()
        if (lines := summary.of(section))
    )


def parse(text: str, known: Callable[[int], bool] = lambda _: True) -> Summary:
    """Read a summary that we or a model wrote. References to messages that are not `known` are left out."""
    by_title = {heading.casefold(): section for section, heading in HEADINGS.items()}
    lines: dict[Section, list[SummaryLine]] = {}
    request: list[str] = []
    section: Section | None = None
    quoting = False
    for row in text.split("\n"):
        if heading := _HEADING.match(row):
            title = heading["title"].rstrip(" \t\r#:").casefold()
            quoting = title == REQUEST.casefold()
            section = by_title.get(title)
        elif quoting:
            request.append(row.removeprefix(">").removeprefix(" "))
        elif section and (match := _LINE.match(row)):
            lines.setdefault(section, []).append(_line(match["text"], known))
    return Summary({name: tuple(found) for name, found in lines.items()}, "\n".join(request).strip("\n"))


def stands_in(message: Message) -> bool:
    """Return whether a message is a summary that stands for others."""
    return message.finish_reason == STANDS and isinstance(message.content, str) and is_summary(message.content)


def _line(said: str, known: Callable[[int], bool]) -> SummaryLine:
    said = said.rstrip()
    before, bracket, named = said.rpartition("[")
    if not bracket or not _SOURCES.fullmatch(named.removesuffix("]")) or not named.endswith("]"):
        return SummaryLine(said)
    return SummaryLine(before.rstrip(), tuple(number for number in numbers(named[:-1]) if known(number)))


_MOST_SOURCES = 10_000
_SHOWN_RUNS = 8
"""Runs of numbers that one line names: for frequent numbers, the first and the newest place are enough."""


def numbers(text: str) -> list[int]:
    """Parse `#12-14, #20` → 12, 13, 14, 20. A range that is too long is cut."""
    found: list[int] = []
    for part in text.replace("#", "").split(","):
        first, _, last = (bound.strip() for bound in part.replace("–", "-").partition("-"))
        if first.isdigit() and len(found) < 2 * _MOST_SOURCES:
            begin, end = int(first), int(last) if last.isdigit() else int(first)
            found += range(begin, min(end, begin + _MOST_SOURCES) + 1)
    return sorted(set(found))[:_MOST_SOURCES]


def ranges(sources: Iterable[int], most: int = 0) -> str:
    """Return 12, 13, 14, 20 as `#12-14, 20`. With a limit, the first of so many runs and the newest ones."""
    runs: list[list[int]] = []
    for number in sorted(set(sources)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if 0 < most < len(runs):
        runs[1 : len(runs) - most + 1] = []
    return "#" + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) if runs else ""


def _quoted(text: str) -> str:
    return "\n".join(f"> {row}" if row else ">" for row in text.split("\n"))


# What a summary must not lose: paths, identifiers, numbers and open tasks, found without a model.
# Every pattern begins with something that a search can jump to and repeats possessively, so reading is linear.

Kind: TypeAlias = Literal["path", "identifier", "number"]

_URL = re.compile(r"\bhttps?://[^\s<>\"'`)\]]++")
_EDGE_OF_WORD = r"(?<![\w@+~.\\/-])"
_SLASHED = re.compile(rf"{_EDGE_OF_WORD}(?:[A-Za-z]:(?=[\\/]))?+[\w@+~.-]*+(?:[\\/][\w@+~.-]*+)++")
_DOTTED = re.compile(rf"{_EDGE_OF_WORD}[\w@+-]++(?:\.[\w@+-]++)++(?![\\/])")
_ROOTED = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[\\/]\w")
_SUFFIXED = re.compile(r"\.[A-Za-z]\w{0,9}$")
_FILE = re.compile(
    r"\.(?:py|js|ts|tsx|jsx|go|rs|c|h|cc|cpp|hpp|java|kt|rb|php|sh|sql|md|txt|json|jsonl|yaml|yml|toml|ini|cfg|conf|env|lock"
    r"|log|csv|html|css|ipynb|xml|db|service|tf|proto)$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"`([^`\s][^`\n]{0,78})`")
_IDENTIFIER = re.compile(
    r"\b(?:(?!\d)[A-Za-z0-9]++(?:_++[A-Za-z0-9]++)++"  # snake_case, CONSTANT_CASE
    r"|[a-z]++[A-Z]\w++|[A-Z][a-z0-9]++[A-Z]\w++"  # camelCase, PascalCase
    r"|[A-Z]{2,10}+-\d++"  # TICKET-12
    r"|v?\d++\.\d++\.\d++[\w.+-]*+"  # 1.2.3
    r"|(?=\w*\d)(?=\w*[a-f])[0-9a-f]{7,40}+)\b"  # a hash
)
_NUMBER = re.compile(
    r"(?<![\w.-])\d{4}-\d{2}-\d{2}(?!\d)"
    r"|(?<![\w.,-])\d[\d,.]*+ ?(?:%|ms|s|min|h|days?|KB|MB|GB|TB|kB|Hz|px|USD|EUR|[$€£¥])(?!\w)"
    r"|(?<![\w.])[$€£¥]\d[\d,.]*+"
    r"|(?<![\w.,-])(?:\d{1,3}(?:,\d{3})++|\d{3,}+)(?![\w.])"
)
_LABELS = "Todo|todo|Next(?: steps?)?|Remaining|Still open|Open|Left to do"
_ASIAN_LABELS = "待办|待做|下一步|还需要|未完成|やること|次にやること|残り"
_UNFINISHED = (
    "still (?:need|have|needs|has) to|remains to|not (?:yet )?(?:done|finished|fixed)|have yet to"
    "|needs? to be (?:done|fixed|checked)|blocked (?:on|by)|waiting for"
)
_TASK = re.compile(
    r"^[ \t]*+(?:[-*+]|\d{1,3}[.)])[ \t]*+\[ \][ \t]*+(?P<box>\S[^\n]{2,300})"
    rf"|(?:\b(?:TODO|FIXME)|^[^\n\w]{{0,10}}(?:{_LABELS}|{_ASIAN_LABELS}))[ \t]*+[:：][ \t]*+"
    r"(?P<label>\S[^\n]{2,300})"
    rf"|^(?P<said>[^\n]{{0,200}}?\b(?:{_UNFINISHED})\b[^\n]{{0,200}})",
    re.MULTILINE,
)
_DONE = re.compile(r"^[ \t]*+(?:[-*+]|\d{1,3}[.)])[ \t]*+\[[xX✓✔]\][ \t]*+(?P<task>\S[^\n]{2,300})", re.MULTILINE)
_EDGE = ".,;:!?)]}»”’'\""
_READ = 200_000
"""Characters read of one text; a longer one is machine output, and its beginning and end suffice."""


class Landmark(NamedTuple):
    """One thing by which work is found again."""

    kind: Kind
    text: str


def landmarks(text: str) -> list[Landmark]:
    """Return paths, identifiers and numbers of a text, each once, in the order in which they first appear."""
    found = sorted((start, Landmark(kind, value)) for kind, start, value in _candidates(bounded(text)) if value)
    return list(dict.fromkeys(mark for _, mark in found))


def _candidates(text: str) -> Iterator[tuple[Kind, int, str]]:
    """Yield one pass per pattern; matches that overlap one of an earlier pass are left to it."""
    spans: list[tuple[int, int]] = []
    passes: tuple[tuple[Kind, re.Pattern[str]], ...] = (
        ("path", _URL),
        ("path", _SLASHED),
        ("path", _DOTTED),
        ("identifier", _QUOTED),
        ("identifier", _IDENTIFIER),
        ("number", _NUMBER),
    )
    for kind, pattern in passes:
        fresh: list[tuple[int, int]] = []
        at = 0
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            start, value = match.start(group), match.group(group).rstrip(_EDGE)
            if pattern in (_SLASHED, _DOTTED) and not _is_path(value):
                continue
            while at < len(spans) and spans[at][1] <= start:
                at += 1
            if at < len(spans) and spans[at][0] < start + len(value):
                continue
            fresh.append((start, start + len(value)))
            yield kind, start, value
        spans = sorted([*spans, *fresh])


def _is_path(word: str) -> bool:
    """Tell paths from words: `and/or` and `3.14` are not paths."""
    parts = [part for part in re.split(r"[\\/]", word) if part]
    if len(parts) < 2:
        return bool(_FILE.search(word))
    return len(parts) > 2 or bool(_ROOTED.match(word) or _SUFFIXED.search(parts[-1]))


def open_tasks(text: str) -> list[str]:
    """Return lines that say what is still to be done, without those that are ticked off later in the same text."""
    text = bounded(text)
    done = {plain(match["task"]) for match in _DONE.finditer(text)}
    tasks = (" ".join((match["box"] or match["label"] or match["said"]).split()) for match in _TASK.finditer(text))
    return list(dict.fromkeys(task for task in tasks if plain(task) not in done))


def finished_tasks(text: str) -> set[str]:
    """Return what a text ticks off, in a form that can be compared."""
    return {plain(match["task"]) for match in _DONE.finditer(bounded(text))}


def survives(mark: Landmark, summary: str) -> bool:
    """Return whether a summary still names it. A path may be named by its last two parts."""
    if mark.text in summary:
        return True
    parts = re.split(r"[\\/]", mark.text)
    return mark.kind == "path" and len(parts) > 2 and "/".join(parts[-2:]) in summary


def bounded(text: str) -> str:
    return text if len(text) <= _READ else f"{text[: _READ // 2]}\n{text[-_READ // 2 :]}"


def plain(task: str) -> str:
    """Return a text in a form that can be compared."""
    return "".join(char for char in task.casefold() if char.isalnum())


# A summary without a model: sentences of the conversation itself, sorted into the sections by what they say.
# It adds nothing. Age and weight decide which lines it leaves out: the newest of each kind stays.

_SENTENCE = re.compile(r"[^.!?。！？\n]++(?:[.!?。！？]++(?!\s|$)[^.!?。！？\n]*+)*+[.!?。！？]*+")
_MARKS: Mapping[Section, re.Pattern[str]] = {
    "constraints": re.compile(
        r"\b(?:must(?: not|n't)?|never|always|only|don't|do not|avoid|instead of|prefers?|make sure|required?"
        r"|should not|at most|at least|no more than|keep)\b"
        r"|必须|不要|务必|只能|禁止|总是|不得|してはいけない|必ず|しないで",
        re.IGNORECASE,
    ),
    "decisions": re.compile(
        r"\b(?:decided|decision|we(?:'ll| will) (?:use|go)|let's (?:use|go)|chose|choose|agreed|settled on|go with"
        r"|going with|switched (?:to|from)|because|so that|rather than)\b|决定|选择|采用|改用|因为|决定しました|採用",
        re.IGNORECASE,
    ),
    "done": re.compile(
        r"\b(?:done|fixed|added|created|implemented|updated|removed|renamed|moved|wrote|written|installed|deployed|passes?"
        r"|passed|works? now|finished|completed|merged|committed|refactored|changed|solved|resolved)\b"
        r"|完成|已经|修复|添加|创建|更新|删除|通过|完了|修正|追加",
        re.IGNORECASE,
    ),
    "errors": re.compile(
        r"\b(?:error|exception|traceback|failed|fails|failure|crash(?:ed|es)?|broken|bug|timed out|denied|refused)\b"
        r"|错误|失败|异常|报错|崩溃|エラー|失敗",
        re.IGNORECASE,
    ),
}
_MOST: Mapping[Section, int] = {
    "goal": 3,
    "constraints": 12,
    "done": 16,
    "state": 6,
    "decisions": 10,
    "questions": 8,
    "files": 24,
    "errors": 10,
    "next": 16,
    "also": 6,
}
_LONGEST = 280
_FILES_A_LINE = 6


def extract(
    messages: Sequence[Message],
    previous: Summary | None = None,
    *,
    scale: float = 1.0,
    paths: Mapping[str, Sequence[int]] | None = None,
) -> Summary:
    """Return the summary of these messages, on top of an earlier one. `scale` below 1 keeps fewer lines of each kind.

    `paths`: where each path is named, for a caller who knows that already.
    """
    paths = Survey.of(messages).paths() if paths is None else paths
    said = [each for message in messages if not stands_in(message) for each in _sayings(message)]
    finished = {task for message in messages for task in finished_tasks(text_of(message.content))}
    summary = previous or Summary()
    for section in _MOST:
        if section in ("files", "also"):
            continue
        old = list(summary.of(section))
        if section == "next":
            old = [line for line in old if plain(line.text) not in finished]
        fresh = [line for named, line in said if named == section]
        if section == "next":
            fresh = [line for line in fresh if plain(line.text) not in finished]
        most = max(1, round(_MOST[section] * scale))
        merged = _merged([*old, *fresh])
        kept = merged[:most] if section == "goal" else merged[-most:]
        summary = summary.with_lines(section, kept)
    summary = summary.with_lines("files", _files(paths, summary.of("files"), max(2, round(_MOST["files"] * scale))))
    request = last_request(messages)
    return Summary(summary.lines, request or summary.request)


def last_request(messages: Iterable[Message]) -> str:
    """Return the user's last message, unchanged."""
    requests = (text_of(each.content) for each in messages if each.role == "user" and not stands_in(each))
    return next((text for text in reversed(list(requests)) if text.strip()), "")


def seen_text(message: Message) -> str:
    """Return the same as the model saw it: of a long tool result, what was sent of it, without the name of its call."""
    if message.role != "tool" or not isinstance(message.sent, str):
        return text_of(message.content)
    return message.sent.replace(message.tool_call_id, "") if message.tool_call_id else message.sent


def marks_of(message: Message) -> list[Landmark]:
    """Return what a message names by which work is found again; tool calls included, an earlier summary not."""
    calls = " ".join(called(call) for call in message.tool_calls)
    return [] if stands_in(message) else landmarks(f"{seen_text(message)}\n{calls}")


def _sayings(message: Message) -> Iterator[tuple[Section, SummaryLine]]:
    """Yield what one message contributes, sentence by sentence."""
    text, source = bounded(text_of(message.content)), (message.id,) if message.id else ()
    if message.role == "tool":
        for row in trouble_lines(bounded(seen_text(message)))[:2]:
            yield ("errors", SummaryLine(_cut(row), source))
        return
    for task in open_tasks(text):
        yield ("next", SummaryLine(_cut(task), source))
    if message.role == "assistant":
        for call in message.tool_calls:
            yield ("state", SummaryLine(_cut(called(call)), source))
    for sentence in _sentences(text):
        section = _section(sentence, message.role)
        if section is not None:
            yield (section, SummaryLine(_cut(sentence), source))


def _section(sentence: str, role: str) -> Section | None:
    asks = sentence.rstrip().endswith(("?", "？"))
    if role == "user":
        if asks:
            return "questions"
        return "constraints" if _MARKS["constraints"].search(sentence) else "goal"
    if asks:
        return "questions"
    for section in ("decisions", "errors", "done"):
        if _MARKS[section].search(sentence):
            return section
    return None


def _sentences(text: str) -> Iterator[str]:
    fenced = False
    for row in text.split("\n"):
        if row.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            continue
        if fenced or not row.strip():
            continue
        for match in _SENTENCE.finditer(row.strip().lstrip("#>*- \t")):
            sentence = " ".join(match.group().split())
            if len(sentence) >= 8:
                yield sentence


def called(call: Mapping[str, Any]) -> str:
    """Return a tool call on one line."""
    function = call.get("function")
    name = function.get("name", "?") if isinstance(function, Mapping) else "?"
    given = function.get("arguments", "") if isinstance(function, Mapping) else ""
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
        if isinstance(arguments, Mapping):
            arguments = ", ".join(f"{key}={' '.join(str(value).split())[:80]}" for key, value in arguments.items())
    except (ValueError, RecursionError):
        arguments = given
    return f"called {name}({' '.join(str(arguments).split())})"


def _files(paths: Mapping[str, Sequence[int]], old: Sequence[SummaryLine], most: int) -> list[SummaryLine]:
    """Return paths with the messages that name them, most often named first, several to a line."""
    where: dict[str, list[int]] = {}
    for line in old:
        for path in line.text.split(", "):
            where.setdefault(path, []).extend(line.sources)
    for path, ids in paths.items():
        where.setdefault(path, []).extend(ids)
    newest = sorted(where, key=lambda path: (-len(where[path]), -max(where[path], default=0)))[: most * _FILES_A_LINE]
    return [
        SummaryLine(", ".join(some), tuple(sorted({number for path in some for number in where[path] if number})))
        for some in (newest[at : at + _FILES_A_LINE] for at in range(0, len(newest), _FILES_A_LINE))
    ]


def _merged(lines: Iterable[SummaryLine]) -> list[SummaryLine]:
    """Return each statement once, where it was last made, with all its sources."""
    seen: dict[str, SummaryLine] = {}
    for line in lines:
        key = plain(line.text)
        before = seen.pop(key, None)
        sources = sorted({*(before.sources if before else ()), *line.sources})
        seen[key] = SummaryLine(line.text, tuple(sources))
    return list(seen.values())


def _cut(text: str, longest: int = _LONGEST) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


# The gate before anything is replaced: does the summary still name what the work hangs on?
# Missing items are added, the most used first, as far as the budget goes. A summary that then still lacks what it must
# have is not used.

_A_LINE = 8
_KINDS = ("path", "identifier", "number")


class Weighty(NamedTuple):
    """A landmark, how many messages name it, which, and whether the user did."""

    mark: Landmark
    sources: tuple[int, ...]
    by_user: bool

    @property
    def required(self) -> bool:
        """Return what the user named, and paths and identifiers that came up again."""
        return self.by_user or (self.mark.kind != "number" and len(self.sources) > 1)


class FidelityReport(NamedTuple):
    """The share of facts that a summary kept, by kind, and the required ones that are missing."""

    kept: dict[str, int]
    there: dict[str, int]
    missing: tuple[Weighty, ...] = ()
    lost_tasks: tuple[str, ...] = ()
    lost_request: bool = False

    @property
    def passed(self) -> bool:
        return not (self.lost_request or self.lost_tasks or any(each.required for each in self.missing))

    def share(self, kind: str) -> float:
        return self.kept.get(kind, 0) / self.there[kind] if self.there.get(kind) else 1.0


class Survey(NamedTuple):
    """The names in a part of a conversation, looked up once."""

    weighty: tuple[Weighty, ...]
    tasks: dict[str, int]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Survey:
        """Look up the landmarks, those that matter most first, and the open tasks with the message that named each."""
        where: dict[Landmark, list[int]] = {}
        users: set[Landmark] = set()
        tasks: dict[str, int] = {}
        for message in messages:
            for mark in marks_of(message):
                where.setdefault(mark, []).append(message.id)
                if message.role == "user":
                    users.add(mark)
            if not stands_in(message) and message.role != "tool":
                text = text_of(message.content)
                finished = finished_tasks(text)
                tasks = {task: at for task, at in tasks.items() if plain(task) not in finished}
                tasks |= dict.fromkeys(open_tasks(text), message.id)
        found = [Weighty(mark, tuple(sorted(set(ids))), mark in users) for mark, ids in where.items()]
        found.sort(key=lambda each: (-each.by_user, -len(each.sources), -max(each.sources, default=0)))
        return cls(tuple(found), tasks)

    def paths(self) -> dict[str, Sequence[int]]:
        return {each.mark.text: each.sources for each in self.weighty if each.mark.kind == "path"}


def check(survey: Survey, summary: Summary, request: str = "") -> FidelityReport:
    """Return how much of what was surveyed a summary still names."""
    text = render(summary)
    weighty = survey.weighty
    missing = tuple(each for each in weighty if not survives(each.mark, text))
    there = {kind: sum(each.mark.kind == kind for each in weighty) for kind in _KINDS}
    gone = {kind: sum(each.mark.kind == kind for each in missing) for kind in _KINDS}
    tasks = survey.tasks
    lost = tuple(task for task in tasks if task[:200] not in text)
    kept: dict[str, int] = {kind: there[kind] - gone[kind] for kind in _KINDS}
    return FidelityReport(
        kept={**kept, "task": len(tasks) - len(lost)},
        there={**there, "task": len(tasks)},
        missing=missing,
        lost_tasks=lost,
        lost_request=bool(request) and request not in summary.request,
    )


def mend(survey: Survey, summary: Summary, request: str, fits: Callable[[str], bool]) -> tuple[Summary, FidelityReport]:
    """Add what is missing: the request, the tasks and what is required in any case, the rest as long as it fits."""
    if request and request not in summary.request:
        summary = Summary(summary.lines, request)
    verdict = check(survey, summary, request)
    tasks = [SummaryLine(task, (at,) if (at := survey.tasks[task]) else ()) for task in verdict.lost_tasks]
    summary = summary.with_lines("next", [*summary.of("next"), *tasks])
    required = [each for each in verdict.missing if each.required]
    summary = _also(summary, required)
    for some in _batches([each for each in verdict.missing if not each.required]):
        longer = _also(summary, some)
        if not fits(render(longer)):
            break
        summary = longer
    return summary, check(survey, summary, request)


def _also(summary: Summary, missing: Sequence[Weighty]) -> Summary:
    lines = [
        SummaryLine(
            ", ".join(each.mark.text for each in some),
            tuple(sorted({at for each in some for at in each.sources if at})),
        )
        for some in _batches(missing)
    ]
    return summary.with_lines("also", [*summary.of("also"), *lines])


def _batches(missing: Sequence[Weighty]) -> list[Sequence[Weighty]]:
    return [missing[at : at + _A_LINE] for at in range(0, len(missing), _A_LINE)]


# Nothing that was only read becomes an order because it was summed up.
# A summary stands where the user and the agent speak, so each of its lines is checked again: fences and
# credentials are taken out, and a line that reads like an attack is left out, with a note that says where its originals
# are. Pure.

LONGEST_LINE = 1_200
"""Characters of one line."""
_SHOWN = 5
"""Notes about single lines; more are counted."""


def vetted(summary: Summary) -> tuple[Summary, list[str]]:
    """Return the summary with its lines cleaned, without those that cannot be trusted; and notes for people."""
    redactor = Redactor()
    cleaned = [
        (section, SummaryLine(_cut(redactor.text(neutralize(sanitize(line.text))), LONGEST_LINE), line.sources))
        for section, every in summary.lines.items()
        for line in every
    ]
    against = _objections([line.text for _, line in cleaned])
    lines: dict[Section, list[SummaryLine]] = {}
    for at, (section, line) in enumerate(cleaned):
        if line.text and at not in against:
            lines.setdefault(section, []).append(line)
    notes = [_note(cleaned[at][1], finding) for at, finding in sorted(against.items())]
    if len(notes) > _SHOWN:
        notes[_SHOWN:] = [f"{len(notes) - _SHOWN} more lines of the summary were left out in the same way."]
    return Summary({section: tuple(some) for section, some in lines.items()}, summary.request), notes


def _objections(texts: Sequence[str]) -> dict[int, Finding]:
    """Return which of these lines the scanner objects to, alone or together with those beside them."""
    ends = list(accumulate(len(text) + 1 for text in texts))
    found: dict[int, Finding] = {}
    for finding in scan("\n".join(texts)):
        first, last = (bisect_right(ends, at) for at in (finding.span[0], max(finding.span[0], finding.span[1] - 1)))
        found |= {at: finding for at in range(first, min(last, len(texts) - 1) + 1) if at not in found}
    return found


def fit_to_repeat(survey: Survey) -> Survey:
    """Return what a summary must name, without credentials and without what reads like an attack."""
    names = _passed([each.mark.text for each in survey.weighty])
    tasks = _passed(list(survey.tasks))
    return Survey(
        tuple(each for each in survey.weighty if each.mark.text in names),
        {task: at for task, at in survey.tasks.items() if task in tasks},
    )


def _passed(texts: Sequence[str]) -> set[str]:
    """Return the texts that the scanner lets through. Mostly that is all of them, and one look will do."""
    every = {text for text in texts if text}
    if not scan("\n\n".join(sorted(every))):
        return every
    return {text for text in every if not scan(text)}


def _note(line: SummaryLine, finding: Finding) -> str:
    where = f"; its messages are {ranges(line.sources)}" if line.sources else ""
    return f"A line of the summary was left out, because it {finding.why} ({finding.rule}){where}."


# From a line of a summary back to the messages it was made from.

MOST = 1_000
"""Messages that one line is expanded to."""
_NAMED = 4
"""Lines that a refusal names at most."""
_NUMBERS = frozenset("#0123456789-–, ")


def expand(text: str, rows: MessageRows, transcripts: Transcripts, session: SessionInfo | None = None) -> Expansion:
    """Return the originals behind a line, given as it stands, by its numbers, or by words of it.

    With a session, those of its conversation; words alone need one.
    """
    line = _numbered(text) or _remembered(text, transcripts, session)
    wanted = line.sources[:MOST]
    found = rows.by_ids(wanted)
    if session is not None:
        members = origins(transcripts, session.id)
        found = {number: message for number, message in found.items() if message.session_id in members}
    if not found:
        where = f" in the conversation {session.id}" if session else ""
        raise UsageError(
            f"None of the messages that this line names is there{where}.",
            hint="They may have been deleted, or belong to another conversation: `herma sessions list` shows them.",
        )
    there = tuple(found[number] for number in sorted(found))
    shown = str(line) if line.text else f"[{ranges(line.sources)}]"
    return Expansion(shown, there, tuple(number for number in line.sources if number not in found))


def _numbered(text: str) -> SummaryLine | None:
    """Read a line with its numbers, or the numbers alone: `[#12-18]`, `#12-18`, `12`."""
    bare = text.strip().removeprefix("[").removesuffix("]")
    if bare and _NUMBERS.issuperset(bare):
        return SummaryLine("", tuple(numbers(bare))) if numbers(bare) else None
    bullet = _LINE.match(text.strip())
    line = _line(bullet["text"] if bullet else text.strip(), lambda _: True)
    return line if line.sources else None


def _remembered(text: str, transcripts: Transcripts, session: SessionInfo | None) -> SummaryLine:
    """Return the line of the conversation's newest summary that has these words."""
    words = _key(text)
    if not words:
        raise UsageError("Which line?", hint='Give it as it stands, or its numbers: "#12-18".')
    if session is None:
        raise UsageError(
            "This line names no messages.", hint='Give its numbers, as in "#12-18", or the session that it stands in.'
        )
    for lines in _summaries(transcripts, session):
        fitting = list(dict.fromkeys(line for line in lines if words in _key(str(line)) and line.sources))
        if len(fitting) > 1:
            some = "; ".join(str(line) for line in fitting[:_NAMED])
            raise UsageError(f"Several lines of the summary have these words: {some}.", hint="Give more of the line.")
        if fitting:
            return fitting[0]
    raise UsageError(
        f"No summary of the conversation {session.id} has a line with these words.",
        hint="`herma sessions show` shows its summaries; session_search and `herma search` find any message.",
    )


def _summaries(transcripts: Transcripts, session: SessionInfo) -> Iterator[list[SummaryLine]]:
    """Yield the lines of each summary in the conversation, the newest first."""
    for member in reversed(transcripts.conversation(session.id)):
        for message in reversed(transcripts.messages(member.id, include_hidden=True)):
            if stands_in(message):
                yield [line for lines in parse(text_of(message.content)).lines.values() for line in lines]


def _key(text: str) -> str:
    return " ".join(text.casefold().strip().removeprefix("- ").split())
