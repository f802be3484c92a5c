"""The sessions of clients: the calling client, the memory that each session received, and what memory has for it.

A client is the program that a person talks with: `claude-code`, `codex`, `gemini`. Its name is the source of its
transcripts, so that a session has one id in Herma, whether a hook, a tool call or an import comes first. What is kept
of a session lies in `logs/clients` of the home. It is derived: without it, a session is shown its snapshot once more.

- `snapshot`: the text for a session's start: curated memory, where the work was left, earlier work, skills
- `turn_recall`: what helps with one message of the user, as in a session of Herma's own
- `relevant`: what helps with a task, for an agent that asks: the tool `recall`

All that is shown is data that others said: fenced, scanned and attributed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from herma.episodes.episodes import EpisodeFeature, line_of, safe
from herma.errors import StoreError
from herma.features import Feature, FeatureDispatcher, fit, without_repeats
from herma.importers.base import stored_id
from herma.memory.archive import ArchiveRecall, archive_terms
from herma.prompt.fence import fence, neutralize
from herma.prompt.tokens import estimate
from herma.safety.scan import scan
from herma.search.prefetch import FactRecall, TranscriptRecall
from herma.skills import SkillContributor
from herma.store.files import exclusive, make_folder
from herma.types import TARGETS, PromptRequest, Scope, SessionInfo, SessionView

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.memory.files import LiveMemory

Activity: TypeAlias = Literal["hook", "start", "tool", "capture"]
KEPT_DAYS = 30
_TELLING = 300
"""Recalled lines that are remembered for a session, so that none is recalled twice."""
_EVENTS = 64
_SAME_EVENT = 30.0
"""Seconds in which the same event without an id of its own is a second firing of it."""
_DAY = 86_400.0
_UNFIT = re.compile(r"[^a-z0-9]+")

# The names that clients give in MCP's `clientInfo`, without blanks and signs: their name, perhaps with more behind it.
_NAMES = (
    *("claude-code", "codex", "gemini", "cursor", "opencode", "copilot"),
    *("zed", "goose", "openclaw", "hermes", "qwen"),
)
_OTHER_NAMES = {
    "claude-ai": "claude-desktop",
    "visual-studio-code": "vscode",
    "visual-studio-code-insiders": "vscode",
    "github-copilot-developer": "copilot",
}
# The folder in which a client keeps its transcripts tells whose payload this is.
_FOLDERS = {
    ".claude": "claude-code",
    ".codex": "codex",
    ".gemini": "gemini",
    ".cursor": "cursor",
    ".copilot": "copilot",
    ".qwen": "qwen",
    ".factory": "droid",
    ".kimi-code": "kimi",
    "workspacestorage": "vscode",
}
_SHARED_HOOKS = ("vscode", "copilot")
_ENVIRONMENT = {"CURSOR_VERSION": "cursor", "FACTORY_PROJECT_DIR": "droid", "GEMINI_PROJECT_DIR": "gemini"}


def slug(name: str) -> str:
    return _UNFIT.sub("-", name.casefold()).strip("-")[:40]


def client_of(name: str) -> str:
    """Return our name of the client that calls itself this in MCP; a name of its own for one that is not known."""
    plain = slug(name)
    known = next((one for one in _NAMES if plain == one or plain.startswith(f"{one}-")), plain)
    return _OTHER_NAMES.get(plain, known) or "mcp"


def recognise(declared: str, payload: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Return the client that runs a hook. Several read each other's hook files, so the file's owner may be another.

    `declared` is the client whose file it is.
    """
    if "cursor_version" in payload or ("conversation_id" in payload and "generation_id" in payload):
        return "cursor"
    transcript = payload.get("transcript_path")
    if isinstance(transcript, str):
        for part in reversed(re.split(r"[\\/]", transcript.casefold())):
            if part in _FOLDERS:
                return _FOLDERS[part]
    for variable, client in _ENVIRONMENT.items():
        if environment.get(variable) and not (client == "gemini" and declared == "qwen"):
            return client
    if declared == "claude-code":  # its hooks are read by others, whose payloads have fields of their own
        if "turn_id" in payload:
            return "codex"
        if "timestamp" in payload and "permission_mode" not in payload:
            return "vscode"
    return declared or "unknown"


# ── what happened last ──


class LastActivity(NamedTuple):
    """The last hook, tool call or capture of a client."""

    at: float
    what: str


def folder_of(home: Path) -> Path:
    return home / "logs" / "clients"


def note_activity(home: Path, client: str, kind: Activity, what: str, at: float) -> None:
    """Write down what a client did last; a home that cannot be written has no record."""
    with suppress(OSError, StoreError):
        folder = folder_of(home)
        make_folder(folder)
        _write(folder / f"{slug(client)}.{kind}", {"at": at, "what": what})


def last_activity(home: Path, client: str, kind: Activity) -> LastActivity | None:
    value = _read(folder_of(home) / f"{slug(client)}.{kind}")
    at = value.get("at")
    return LastActivity(float(at), str(value.get("what", ""))) if isinstance(at, int | float) else None


# ── sessions ──


@dataclass
class ClientSession:
    """The state of one session of a client."""

    client: str
    id: str
    """The id that the client gives it."""
    folder: str = ""
    transcript: str = ""
    process: int = 0
    """The process of the client."""
    memory_version: str = ""
    """The version of curated memory that the session knows, see `LiveMemory`."""
    said: list[str] = field(default_factory=list)
    """The text that was recalled for it."""
    events: dict[str, float] = field(default_factory=dict)
    started: float = 0.0
    seen: float = 0.0

    def is_repeated(self, event: str, key: str, at: float, *, own_id: bool) -> bool:
        """Return whether this event was handled before, and take note of it. `own_id`: the key is of one event only."""
        name = f"{event} {blake2b(key.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"
        before = self.events.pop(name, None)
        self.events[name] = at
        while len(self.events) > _EVENTS:
            del self.events[next(iter(self.events))]
        return before is not None and (own_id or 0 <= at - before < _SAME_EVENT)

    def remember(self, said: set[str]) -> None:
        """Keep what was recalled so far, the newest of it."""
        known = set(self.said)
        self.said = [*self.said, *sorted(said - known)][-_TELLING:]


@contextmanager
def session_of(home: Path, client: str, id_: str) -> Iterator[ClientSession]:
    """Open what is known of a session, alone among the processes, and write it down at the end of the block."""
    make_folder(folder_of(home))
    path = _path(home, client, id_)
    with exclusive(path.with_suffix(".lock"), 2.0):
        session = _load(path) or ClientSession(client, id_)
        yield session
        stored = asdict(session)
        _write(path, {**stored, "told": stored.pop("memory_version")})


def owner_of(home: Path, declared: str, id_: str) -> str:
    """Return the client whose session this id belongs to, where two clients run each other's hooks.

    VS Code and Copilot CLI read the same files, and send payloads that look the same.
    """
    for other in _SHARED_HOOKS if declared in _SHARED_HOOKS else ():
        if other != declared and _path(home, other, id_).exists():
            return other
    return declared


def find_session(
    home: Path, client: str, *, id_: str = "", process: int = 0, folder: str = "", at: float
) -> ClientSession | None:
    """Return the session of a client that has this id; without one, its newest of this process of it, else in this
    folder; None if a day old.
    """
    if id_:
        return _load(_path(home, client, id_))
    found = []
    for path in folder_of(home).glob(f"{slug(client)}-*.json"):
        session = _load(path)
        if session is not None and at - session.seen < _DAY:
            found.append(session)
    found.sort(key=lambda one: one.seen, reverse=True)
    same = [one for one in found if process and one.process == process] or [
        one for one in found if folder and one.folder == folder
    ]
    return same[0] if same else None


def drop_old(home: Path, at: float) -> None:
    """Remove the state of sessions that were not used for a month."""
    for path in folder_of(home).glob("*.*"):
        with suppress(OSError):
            if path.suffix in (".json", ".lock") and at - path.stat().st_mtime > KEPT_DAYS * _DAY:
                path.unlink()


def _path(home: Path, client: str, id_: str) -> Path:
    digest = blake2b(id_.encode("utf-8", "replace"), digest_size=12).hexdigest()
    return folder_of(home) / f"{slug(client)}-{digest}.json"


def _load(path: Path) -> ClientSession | None:
    value = _read(path)
    if not isinstance(value.get("client"), str) or not isinstance(value.get("id"), str):
        return None
    made = ClientSession(value["client"], value["id"])
    for one in fields(ClientSession):
        given = value.get("told" if one.name == "memory_version" else one.name)
        if type(given) is type(getattr(made, one.name)):
            setattr(made, one.name, given)
    return made


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes()[:1_000_000])
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a file, without waiting for the disk: its data is derived."""
    temporary = path.with_name(f".{path.name}.{time.monotonic_ns()}.tmp")
    try:
        temporary.touch(0o600)
        temporary.write_text(json.dumps(value), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


# ── what memory has for a session ──

SNAPSHOT_TOKENS, TURN_TOKENS = 2_000, 900
"""Maximum text at the start of a session, and with one message: clients cut longer text, or put it into a file."""
_LONGEST_TOKEN = 4
"""Characters of a token at the most, on average: clients that count characters allow for that many."""
_TURN_SECONDS = 2.0
"""Seconds that a prompt waits for recall. With an index that is up to date it takes milliseconds."""
INTRODUCTION = "Memory from earlier sessions, kept by Herma for all agents of this user."
_UPDATE = "Memory has changed since this session began:"
_EPISODE_TOKENS, _SKILL_TOKENS = 400, 300
_MESSAGES, _EPISODES, _SKILLS = 6, 3, 4


def view_of(h: Herma, session: ClientSession, shown: str = "") -> SessionView:
    """Return a session of a client as features see one. `shown`: the text that it began with."""
    id_ = stored_id(session.client, session.id)
    info = SessionInfo(id_, session.client, Scope(h.settings.profile), session.started, id_, folder=session.folder)
    return SessionView(info, folder=session.folder, system_prompt=shown)


def snapshot(h: Herma, view: SessionView, *, tokens: int = SNAPSHOT_TOKENS) -> str:
    """Return what a session is shown at its start, or nothing if there is nothing to show."""
    blocks = h.memory.load(view.scope).blocks
    parts = [neutralize(block.text) for block in blocks]
    left = tokens - estimate("\n\n".join(parts))
    request = PromptRequest(view, memory_tokens=max(0, min(left, _EPISODE_TOKENS)), count=estimate)
    episodes = EpisodeFeature(h).contribute(request).episodes
    parts += ["\n".join(episodes)] if episodes else []
    left = tokens - estimate("\n\n".join(parts))
    for feature in SkillContributor.attach(h, view, preview=False):
        request = PromptRequest(view, system_tokens=max(0, min(left, _SKILL_TOKENS)), count=estimate)
        added = feature.contribute(request)
        parts += [added.skills] if added is not None and added.skills else []
    return shortened("\n\n".join([INTRODUCTION, *parts]), tokens) if parts else ""


def shortened(text: str, tokens: int) -> str:
    """Return a text of at most so many tokens, by our estimate and in characters; cut at a line."""
    longest = tokens * _LONGEST_TOKEN
    if len(text) <= longest and estimate(text) <= tokens:
        return text
    note = "\n[Cut here; the tools of the herma server show the rest.]"
    kept: list[str] = []
    used = estimate(note)
    for line in text[: longest - len(note)].split("\n")[: -1 if len(text) > longest - len(note) else None]:
        used += estimate(line) + 1
        if used > tokens:
            break
        kept.append(line)
    return "\n".join(kept) + note


def turn_recall(h: Herma, session: ClientSession, text: str, *, tokens: int = TURN_TOKENS) -> str:
    """Return what is recalled for a message of the user, and what changed in memory, fenced. Nothing is said twice.

    `session` remembers the text that it was given.
    """
    live = h.memory.follow(Scope(h.settings.profile))
    shown = "\n".join(block.text for block in live.snapshot.blocks)
    view = view_of(h, session, shown)
    features: list[Feature] = [*ArchiveRecall.attach(h, view, preview=False)]
    if h.settings.search.prefetch:
        features += [FactRecall(h, _TURN_SECONDS), TranscriptRecall(h, _TURN_SECONDS)]
    dispatcher = FeatureDispatcher(features, shown=h.record_trouble)
    said = set(session.said)
    kept, _ = fit(dispatcher.recall(view, text), said)
    dispatcher.closing(view, "hook")
    changed = without_repeats(memory_changes(h, session, live), said)
    session.remember(said)
    found = [one.text for one in kept] + ([f"{_UPDATE}\n{changed}"] if changed else [])
    return fence(shortened("\n\n".join(found), tokens)) if found else ""


def memory_changes(h: Herma, session: ClientSession, live: LiveMemory | None = None) -> str:
    """Return the changes of curated memory since the session's last update. From now on it counts as known."""
    live = live or h.memory.follow(Scope(h.settings.profile))
    known = session.memory_version
    if known:
        live.recall(known)
    changed = live.update()
    live.ensure_recorded()
    session.memory_version = live.memory_version
    return changed if known else ""


# ── for an agent that asks ──


@dataclass(frozen=True, slots=True)
class RecallPart:
    """One kind of memory, and how it finds lines for a task. It takes at most `share` of the budget."""

    name: str
    heading: str
    share: float
    find: Callable[[Herma, str, Scope, str], Iterator[str]]


def relevant(h: Herma, part: RecallPart, task: str, conversation: str, tokens: int, said: set[str]) -> str:
    """Return the lines of one part that fit into so many tokens, under its heading; nothing without lines."""
    lines = []
    left = tokens - estimate(part.heading)
    for line in part.find(h, task, Scope(h.settings.profile), conversation):
        plain = neutralize(line)
        left -= estimate(plain) + 1
        if left < 0:
            break
        if plain not in said and not scan(plain):
            said.add(plain)
            lines.append(plain)
    return "\n".join([part.heading, *lines]) if lines else ""


def _memory(h: Herma, task: str, scope: Scope, conversation: str) -> Iterator[str]:
    """Yield the entries that share words with the task, those with the most first; archived ones after them."""
    del conversation
    fact = h.facts.answer(task, scope)
    if fact is not None:
        day = time.strftime("%Y-%m-%d", time.localtime(fact.valid_from))
        yield f"- {fact.subject}: {fact.attribute} = {' '.join(fact.value.split())} (since {day})"
    wanted = set(archive_terms(task))
    found = []
    for target in TARGETS:
        if h.memory.is_enabled(target):
            for entry in h.memory.describe(target, scope=scope):
                shared = len(wanted & set(archive_terms(entry.text)))
                if shared and (not entry.findings or entry.vouched):
                    found.append((shared, f"- {_on_one_line(entry.text)} [{target}]"))
    yield from (line for _, line in sorted(found, key=lambda one: -one[0]))
    for hit in h.memory.archive.recall(task, scope=scope):
        yield f"- {_on_one_line(hit.entry.text)} [archived]"


def _messages(h: Herma, task: str, scope: Scope, conversation: str) -> Iterator[str]:
    report = h.search(
        task,
        limit=_MESSAGES,
        level="message",
        scope=scope,
        current_session=conversation or None,
        role=("user", "assistant"),
    )
    for hit in report.hits if not report.widened else ():
        day = time.strftime("%Y-%m-%d", time.localtime(hit.timestamp))
        source = hit.session.source if hit.session else ""
        where = f'session_id="{hit.session_id}", around_message_id={hit.message_id}'
        yield f"- {day}, {hit.role}{f' in {source}' if source else ''}: {_on_one_line(hit.snippet)} [{where}]"


def _episodes(h: Herma, task: str, scope: Scope, conversation: str) -> Iterator[str]:
    for hit in h.episodes.search_similar(task, scope=scope)[:_EPISODES]:
        if hit.episode.conversation != conversation and (line := line_of(hit.episode)):
            yield f"- {line}"


def _skills(h: Herma, task: str, scope: Scope, conversation: str) -> Iterator[str]:
    del scope, conversation
    for one in h.skills.find(task, _SKILLS).matches:
        yield f"- {safe(one.name)}: {safe(one.skill.description)[:200]}"


PARTS = (
    RecallPart("memory", "# Memory", 0.4, _memory),
    RecallPart("messages", "# Said in earlier sessions (session_search reads on)", 0.6, _messages),
    RecallPart("episodes", "# Earlier work like this", 0.8, _episodes),
    RecallPart("skills", "# Skills that may fit (skill_view reads one)", 1.0, _skills),
)
"""In this order; each may take what those before it left, up to its share of the whole."""


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
