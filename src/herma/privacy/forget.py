"""Remove a text, a conversation or a person from every layer of a home, for good.

    job = Forgetting(h)
    job.plan(ForgetRequest("match", "Erika Mustermann"))     # the rows, and what cannot be reached; changes nothing
    job.run(ForgetRequest("session", id))

Every step is decided by what is still there, so that a run that was cut off is finished by the next one: the request
stands in a file of the home until everything is done. A message keeps its row, so that turns and tool calls stay whole;
its texts become `[forgotten]`. Deleted rows are overwritten by SQLite, the write-ahead log is emptied and the text
index is rebuilt; then the files themselves are searched.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import apsw
import click

from herma.cli.context import CommandContext, HermaCommand, dry_run_option, for_people_only, with_home, yes_option
from herma.errors import UsageError
from herma.memory.entries import Place, hash_of, join, parse
from herma.memory.files import path_of
from herma.privacy.export import SHOWN, Progress, bar, rows_as_lines, tables
from herma.store.archive import DATABASE, folder_of
from herma.store.files import replace_file
from herma.transcript.rows import SessionRows, cell, stored_value, texts
from herma.types import Remove, Scope

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.store.database import DatabaseConnection

Kind: TypeAlias = Literal["match", "session", "user"]
FORGOTTEN = "[forgotten]"
SHORTEST = 3
"""Characters of a text to match: a shorter one stands in too much."""
JOURNAL = ".forget.json"
_SLICE = 500
_LAYERS = {
    "episodes": "episodes",
    "states": "notes on where work was left",
    "facts": "facts",
    "proposals": "proposals",
    "skill_proposals": "proposals",
    "archive": "archived entries",
    "reviews": "notes of reviews",
    "skill_history": "changes of skills",
}
"""Statements of `forget.sql` that read id, session, user and texts of rows which go as a whole, and their layers."""
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_LIVE = ("herma.db", "index.db", JOURNAL)


class ForgetRequest(NamedTuple):
    """The thing to forget: a text, a session (id, its beginning, or title) or a user id."""

    kind: Kind
    text: str
    sessions: tuple[str, ...] = ()
    """The sessions that go; found by `plan`."""


class ForgottenRow(NamedTuple):
    """One row that goes or is changed, with an excerpt."""

    layer: str
    id: str
    text: str = ""


@dataclass
class ForgetReport:
    """The data that was removed, or would be, and the data that cannot be reached."""

    request: ForgetRequest
    rows: list[ForgottenRow] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)

    @property
    def removed(self) -> dict[str, int]:
        """Return how many rows of each layer."""
        return dict(Counter(row.layer for row in self.rows))

    def json(self) -> dict[str, Any]:
        request = {"kind": self.request.kind, "text": self.request.text}
        rows = [row._asdict() for row in self.rows]
        return {**request, "removed": self.removed, "rows": rows, "unreached": self.unreached}


class _Text:
    """Find a text in values, whatever its capitals and white space, also inside JSON in JSON."""

    def __init__(self, text: str) -> None:
        plain = " ".join(text.split()).casefold()
        once = json.dumps(plain, ensure_ascii=False)[1:-1]
        self._needles = tuple(dict.fromkeys((plain, once, json.dumps(once, ensure_ascii=False)[1:-1])))
        self._words = plain.split()

    def __call__(self, value: object) -> bool:
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if not isinstance(value, str):
            return False
        if "\\u" in value:  # as JSON writes letters that are not ASCII
            value = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), value)
            value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        folded = value.casefold()
        if any(needle in folded for needle in self._needles):
            return True
        if len(self._words) == 1 or self._words[0] not in folded:
            return False
        flat = " ".join(folded.replace("\\n", " ").replace("\\t", " ").split())
        return any(needle in flat for needle in self._needles)

    def excerpt(self, value: str) -> str:
        flat = " ".join(value.split())
        at = max(0, flat.casefold().find(self._words[0]) - 20)
        return ("…" if at else "") + flat[at : at + 70]


class Forgetting:
    """Forget in one opened home."""

    def __init__(self, app: Herma) -> None:
        self._app = app
        self._db = app.db
        self._sql = app.db.queries("privacy.forget")
        self._journal = app.home / JOURNAL

    def unfinished(self) -> ForgetRequest | None:
        """Return the request of a run that was cut off."""
        try:
            given = json.loads(self._journal.read_bytes())
            return ForgetRequest(given["kind"], given["text"], tuple(given["sessions"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def plan(self, request: ForgetRequest, *, progress: Progress | None = None) -> ForgetReport:
        """Return the rows that would go. Changes nothing."""
        return _Run(self._app, self._sql, self._found(request), do=False, progress=progress).all()

    def run(self, request: ForgetRequest, *, progress: Progress | None = None) -> ForgetReport:
        """Forget, and return what was removed and what could not be reached."""
        request = request if request.sessions else self._found(request)
        replace_file(self._journal, json.dumps(request._asdict()).encode())
        report = _Run(self._app, self._sql, request, do=True, progress=progress).all()
        self._journal.unlink(missing_ok=True)
        return report

    def _found(self, request: ForgetRequest) -> ForgetRequest:
        """Check a request, and find the sessions that go as a whole."""
        text = request.text.strip()
        if request.kind == "match":
            if len(text) < SHORTEST:
                raise UsageError(
                    f"{request.text!r} is too short to forget: it would match too much. Nothing was changed.",
                    hint=f"Give at least {SHORTEST} characters.",
                )
            return ForgetRequest("match", text)
        if request.kind == "session":
            found = self._app.transcripts.resolve(text)
            waiting = [one.id for one in self._app.transcripts.deleted() if one.id == text]
            if found is None and not waiting:
                raise UsageError(
                    f"There is no session {text!r}; nothing was changed.",
                    hint="`herma sessions list` lists them.",
                    code="not_found",
                )
            chosen = [found] if found else waiting
        else:
            chosen = [row[0] for row in self._db.rows(self._sql["sessions"]) if row[1] == text]
            if not chosen and not any(self._db.row(self._sql["user_rows"], {"user": text}) or ()):
                raise UsageError(
                    f"There is no user {text!r}; nothing was changed.",
                    hint="`herma sessions list --json` shows the user of each session.",
                    code="not_found",
                )
        whole = [one.id for one in self._app.transcripts.delete(chosen, dry_run=True).sessions] if chosen else []
        return ForgetRequest(request.kind, text, tuple(dict.fromkeys([*chosen, *whole])))


class _Run:
    """One pass over every layer, which only looks unless `do`."""

    def __init__(
        self, app: Herma, sql: dict[str, str], request: ForgetRequest, *, do: bool, progress: Progress | None
    ) -> None:
        self._app, self._db, self._sql, self._do = app, app.db, sql, do
        self._progress = progress or (lambda _done, _total: None)
        self._report = ForgetReport(request)
        self._kind, self._sessions = request.kind, set(request.sessions)
        self._user = request.text if request.kind == "user" else None
        self._text = _Text(request.text) if request.kind == "match" else None
        self._entries: set[tuple[Place, str]] = set()
        """Entries of memory that were written in the sessions that go."""
        self._written: list[str] = []
        self._origins: set[str] = set()
        self._touched = False

    def all(self) -> ForgetReport:
        history = self._history()
        self._memory(history)
        for name, layer in _LAYERS.items():
            self._rows(name, layer)
        self._written = [
            one for _, entry in self._entries for one in {entry, json.dumps(entry, ensure_ascii=False)[1:-1]}
        ]
        if self._text or self._written:
            self._messages()
            self._titles()
        self._rewrite(history if not self._do else self._history())
        self._user_rows()
        self._purge()
        self._copies()
        if self._do:
            self._finish()
        self._name_unreached()
        return self._report

    def _add(self, layer: str, key: object, text: str = "") -> None:
        said = self._text.excerpt(text) if self._text else " ".join(text.split())[:70]
        self._report.rows.append(ForgottenRow(layer, str(key), said))

    def _wanted(self, session: object, user: object, values: Iterable[object]) -> bool:
        if self._text:
            return any(map(self._text, values))
        written = {entry for _, entry in self._entries}
        return session in self._sessions or (user == self._user and bool(user)) or any(one in written for one in values)

    # ── memory ──

    def _history(self) -> dict[Place, list[list[Any]]]:
        """Return the changes of every document; note the entries that the sessions which go have written."""
        found: dict[Place, list[list[Any]]] = {}
        self._app.memory.changes(limit=1)  # records what was edited by hand
        for number, profile, project, user, target, session, *rest in self._db.rows(self._sql["history"]):
            place = Place(target, profile, project, user)
            rows = found.setdefault(place, [])
            if session in self._sessions:
                before = set(parse(rows[-1][4])) if rows else set()
                self._entries |= {(place, entry) for entry in set(parse(rest[3])) - before}
            rows.append([number, *rest])
        return found

    def _goes(self, place: Place, entry: str) -> bool:
        return (
            self._text(entry)
            if self._text
            else (place, entry) in self._entries or (place.user == self._user and bool(place.user))
        )

    def _memory(self, places: Iterable[Place]) -> None:
        """Take matching entries out of the files, as a change that the history has until it is rewritten."""
        here = [Place(target, self._app.settings.profile) for target in ("memory", "user")]
        for place in dict.fromkeys([*here, *places]):
            scope = Scope(place.profile, place.project, place.user)
            gone = [one for one in self._app.memory.entries(place.target, scope=scope) if self._goes(place, one)]
            for entry in gone:
                self._add("memory entries", place.target.upper() + ".md", entry)
            if gone and self._do:
                outcome = self._app.memory.apply(place.target, [Remove(one) for one in gone], scope=scope)
                if not outcome.ok:
                    self._report.unreached.append(f"{path_of(self._app.home, place)}: {outcome.message}")

    def _rewrite(self, history: dict[Place, list[list[Any]]]) -> None:
        """Take entries out of the texts that the history has; each text keeps its place in the chain."""
        for place, rows in history.items():
            if place.user and place.user == self._user:
                continue  # goes as a whole
            hashes: dict[str, str] = {}
            gone: set[str] = set()
            changed = []
            for number, reason, before, after, text, _state in rows:
                kept = [one for one in parse(text) if not self._goes(place, one)]
                gone.update(one for one in parse(text) if self._goes(place, one))
                whole = join(kept) if len(kept) < len(parse(text)) else text
                if self._text and self._text(whole):  # across a delimiter, or in text that is not an entry
                    whole = FORGOTTEN
                said = FORGOTTEN if self._text and self._text(reason) else reason
                hashes[after] = hash_of(whole) if whole != text else after
                new = {"id": number, "reason": said, "after_text": whole, "after_hash": hashes[after]}
                new["before_hash"] = hashes.get(before, before)
                if (said, whole, new["before_hash"]) != (reason, text, before):
                    changed.append(new)
                if (said, whole) != (reason, text):
                    self._add("changes of memory", f"m{number}", next(iter(gone), reason))
            if self._do and changed:
                marks = [hash_of(one) for one in gone]

                def work(
                    connection: DatabaseConnection,
                    place: Place = place,
                    changed: Sequence[dict[str, Any]] = changed,
                    marks: Sequence[str] = marks,
                ) -> None:
                    connection.run_many(self._sql["rewrite"], changed)
                    connection.run(self._sql["drop_entries"], {**place.key, "hashes": marks})

                self._db.write(work)

    def _user_rows(self) -> None:
        if self._user is None:
            return
        changes, entries = self._db.row(self._sql["user_rows"], {"user": self._user}) or (0, 0)
        self._report.rows += [ForgottenRow("changes of memory", f"user {self._user}")] * changes
        self._report.rows += [ForgottenRow("notes on entries", f"user {self._user}")] * entries
        if not self._do:
            return

        def work(connection: DatabaseConnection) -> None:
            for name in ("changes", "entries", "tidied", "facts_read"):
                connection.run(self._sql[f"drop_user_{name}"], {"user": self._user})

        self._db.write(work)
        folder = path_of(self._app.home, Place("user", self._app.settings.profile, user=self._user)).parent
        shutil.rmtree(folder, ignore_errors=True)

    # ── rows that go as a whole ──

    def _rows(self, name: str, layer: str) -> None:
        found = []
        for key, session, user, *values in self._db.rows(self._sql[name]):
            if self._wanted(session, user, values):
                found.append(key)
                shown = [one for one in values if isinstance(one, str) and (not self._text or self._text(one))]
                self._add(layer, key, shown[0] if shown else "")
        if not found or not self._do:
            return

        def work(connection: DatabaseConnection) -> None:
            for statement in (f"drop_uses_{name}", f"drop_more_{name}", f"drop_{name}"):
                if statement in self._sql:
                    connection.run(self._sql[statement], {"ids": found})

        self._db.write(work)

    # ── transcripts ──

    def _messages(self) -> None:
        (total,) = self._db.row(self._sql["message_count"]) or (0,)
        after = done = 0
        while True:

            def some(connection: DatabaseConnection, after: int = after) -> list[Any]:
                rows = connection.rows(self._sql["messages"], {"after": after, "limit": _SLICE})
                text = texts(connection, [value for row in rows for value in row[4:11]])
                return [(*row[:4], *map(text, row[4:11]), row[11]) for row in rows]

            nothing: list[Any] = []
            rows = self._db.read(some, nothing)
            if not rows:
                return
            after, done = rows[-1][0], done + len(rows)
            self._progress(done, total)
            hits = [row for row in rows if any(map(self._said, row[4:])) or any(map(self._shown, row[8:10]))]
            hits = [row for row in hits if row[1] not in self._sessions]
            for number, session, imported, source, *values in hits:
                shown = next(one for one in values if self._said(one) or (not self._text and self._shown(one)))
                self._add("messages", f"{number} in {session}", shown)
                self._origins |= {source} if imported else set()
            if hits and self._do:
                self._touched = True
                self._db.write(lambda connection, hits=hits: self._blank(connection, hits))  # type: ignore[misc]

    def _said(self, value: object) -> bool:
        """Return whether the text that is to be forgotten stands in a value."""
        return self._text is not None and self._text(value)

    def _shown(self, value: object) -> bool:
        """Return whether a model was shown in this text what is to be forgotten."""
        if self._text:
            return self._text(value)
        return isinstance(value, str) and any(entry in value for entry in self._written)

    def _blank(self, connection: DatabaseConnection, hits: Sequence[Sequence[Any]]) -> None:
        """Replace the texts of messages, and delete their payloads unless another message has them too."""
        sessions = connection.queries("transcript.sessions")
        freed: list[int] = []
        for number, _, _, _, *values in hits:
            content, parts, calls, reasoning, sent, sent_parts, extra, tool = values
            if any(map(self._said, (content, parts))):
                content, parts = FORGOTTEN, None
            if any(map(self._shown, (sent, sent_parts))):
                sent, sent_parts = None, None
            if self._said(calls):
                calls = json.dumps([self._without(call) for call in json.loads(calls)], ensure_ascii=False)
            new = {"content": content, "parts": parts, "tool_calls": calls, "sent": sent, "sent_parts": sent_parts}
            new |= {"reasoning": None if self._said(reasoning) else reasoning}
            new |= {"extra": None if self._said(extra) else extra}
            used: set[int] = set()
            row = {name: stored_value(connection, cell(value), used) for name, value in new.items()}
            row |= {"id": number, "tool_name": None if self._said(tool) else tool}
            connection.run(self._sql["blank_message"], row)
            freed += [one[0] for one in connection.rows(sessions["purge_uses"], {"ids": [number]})]
            use = connection.queries("transcript.messages")["use"]
            connection.run_many(use, [(one, number) for one in sorted(used)])
            connection.run(self._sql["changed"], {"id": number})
        connection.run(sessions["purge_payloads"], {"ids": freed})

    def _without(self, call: dict[str, Any]) -> dict[str, Any]:
        function = dict(call.get("function") or {})
        name = FORGOTTEN if self._said(function.get("name")) else function.get("name")
        return (
            {**call, "function": {**function, "name": name, "arguments": "{}"}}
            if self._said(json.dumps(call, ensure_ascii=False))
            else call
        )

    def _titles(self) -> None:
        """Blank titles, previews and places of sessions, and take prompts away in which the text stands."""
        for session, _user, has_prompt, *values in self._db.rows(self._sql["sessions"]):
            prompt = self._app.transcripts.system_prompt(session) if has_prompt else None
            if any(map(self._said, values)):
                self._add("sessions", session, next(one for one in values if self._said(one)))
                kept = zip(("title", "model", "preview", "folder", "branch"), values, strict=True)
                new = {name: one for name, one in kept if not self._said(one)}
                empty = {"title": None, "model": None, "preview": "", "folder": "", "branch": ""}
                if self._do:
                    self._db.run(self._sql["blank_session"], {"id": session, **empty, **new})
            if self._shown(prompt) and session not in self._sessions:
                self._add("system prompts", session, prompt or "")
                if self._do:
                    self._db.write(lambda connection, session=session: self._take_prompt(connection, session))  # type: ignore[misc]

    def _take_prompt(self, connection: DatabaseConnection, session: str) -> None:
        found = connection.rows(self._sql["prompt_of"], {"id": session})
        connection.run(self._sql["take_prompt"], {"id": session})
        connection.run(connection.queries("transcript.sessions")["purge_payloads"], {"ids": [row[0] for row in found]})

    def _purge(self) -> None:
        """Remove whole sessions with everything that was distilled of them."""
        rows = SessionRows(self._db)
        for number, (session, info) in enumerate(rows.get(sorted(self._sessions), deleted=True).items()):
            self._add("sessions", session, info.title or info.preview)
            self._report.rows += [ForgottenRow("messages", f"of {session}")] * info.message_count
            self._origins |= {info.source} if info.imported is not None else set()
            if self._do:
                self._touched = True
                rows.update([session], {"deleted": self._app.clock()})
                rows.purge(session)
                self._progress(number + 1, len(self._sessions))

    # ── files ──

    def _copies(self) -> None:
        """Delete copies that Herma made of memory and of migrated files, if the text stands in them."""
        if not self._text:
            return
        for file in self._files():
            inner = file.relative_to(self._app.home)
            copy = inner.parts[0] == "migration" or (inner.parts[0] == "memories" and ".bak" in inner.name)
            if not self._stands_in(file):
                continue
            if copy:
                self._add("copies of files", inner)
                if self._do:
                    file.unlink(missing_ok=True)
            elif inner.parts[0] != "memories" or self._do:  # current memory is removed by its entries
                self._report.unreached.append(f"{inner}: the text stands in this file; edit or delete it")

    def _files(self) -> Iterator[Path]:
        home = self._app.home
        for one in sorted(home.rglob("*")):
            inner = one.relative_to(home)
            if (
                one.is_file()
                and not one.is_symlink()
                and not inner.name.startswith(_LIVE)
                and inner.parts[0] != "backups"
            ):
                yield one

    def _stands_in(self, file: Path) -> bool:
        """Return whether the text stands in the bytes of a file, piece by piece."""
        assert self._text
        tail = b""
        try:
            with file.open("rb") as stream:
                while piece := stream.read(1 << 22):
                    if self._text(tail + piece):
                        return True
                    tail = piece[-4096:]
        except OSError:
            return False
        return False

    def _finish(self) -> None:
        """Let the index follow, empty the log, and look whether the text still stands in a row or in the file."""
        if self._touched:
            self._app.index.vectors.catch_up()
            self._app.index.rebuild(self._progress, embedding=None)
        if self._text:
            paths = [path for path, _ in self._db.rows(self._sql["files"]) if self._text(path)]
            self._db.run(self._sql["drop_files"], {"paths": paths})
            left = [name for name in tables() if any(map(self._text, rows_as_lines(self._app, name)))]
            self._report.unreached += [f"a name, an id or a path in the table {name}" for name in left]
        database = self._app.home / DATABASE
        if not database.exists() or self._db.engine != "sqlite":
            return
        emptied = self._empty_log(database)
        if self._text and self._stands_in(database):
            emptied = self._empty_log(database, "VACUUM")
            if self._stands_in(database) and not self._report.unreached:
                self._report.unreached.append(f"{DATABASE}: the text stands in a name, an id or a path that was kept")
        if not emptied:
            self._report.unreached.append(
                f"{DATABASE}-wal: another program has the home open; the log is overwritten when it is closed"
            )

    def _empty_log(self, database: Path, first: str = "") -> bool:
        try:
            with closing(apsw.Connection(str(database))) as connection:
                connection.set_busy_timeout(10_000)
                connection.execute(first)
                rows = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except apsw.Error:
            return False
        return not rows or not rows[0][0]

    def _name_unreached(self) -> None:
        report, home = self._report, self._app.home
        backups = sorted(folder_of(home).glob("*.tar.zst"))
        report.unreached += [f"backups/{file.name}: a backup; delete it if it is too old to need" for file in backups]
        others = [one for one in home.glob("*.db*") if not one.name.startswith(("herma.db", "index.db"))]
        report.unreached += [f"{one.name}: another database" for one in others]
        if self._sessions:
            skills = self._db.rows(self._sql["skills_of"], {"ids": sorted(self._sessions)})
            report.unreached += [f"skill {name}: it was changed in these sessions; look at it" for (name,) in skills]
        report.unreached += [
            f"the files of {source} that sessions were imported from" for source in sorted(self._origins)
        ]
        if self._db.engine != "sqlite":
            report.unreached.append("the server's own log and backups; it frees deleted rows when it vacuums")
        if provider := self._app.settings.memory.provider.strip():
            report.unreached.append(f"the provider {provider}, which keeps its own copy")


# ── commands ──


@click.command("forget", cls=HermaCommand)
@click.option("--match", metavar="TEXT", help="Everything in which this text stands, in capitals or not.")
@click.option("--session", metavar="ID", help="A conversation, by id or title, and what was learned from it.")
@click.option("--user", metavar="ID", help="A person: their conversations, their profile, what was learned from them.")
@dry_run_option
@yes_option
@with_home
def forget_(context: CommandContext, match: str | None, session: str | None, user: str | None, dry_run: bool) -> None:
    """Remove a text, a conversation or a person from every layer, for good.

    That is transcripts, search index and vectors, episodes, facts, memory with its history, archive and inbox, and
    what deleted rows leave in the files. A message in which the text stands keeps its place and says [forgotten].
    It shows the rows first and asks. Afterwards it lists what it cannot reach: backups, originals, other programs.

    \b
    Examples:
      herma forget --match "Erika Mustermann" --dry-run
      herma forget --session 20261231_2359
      herma forget --user telegram-4711 --yes
    """
    for_people_only("Forgetting")
    job = Forgetting(context.h)
    options: dict[Kind, str | None] = {"match": match, "session": session, "user": user}
    given = [ForgetRequest(kind, text) for kind, text in options.items() if text is not None]
    if pending := job.unfinished():
        context.warn(
            f"A `herma forget --{pending.kind}` was cut off; {'the next one' if dry_run else 'this one'} ends it."
        )
        if not dry_run:  # it was confirmed then
            _forget(context, job, pending)
        if not given:
            return
    if len(given) != 1:
        raise UsageError(
            "Give one of --match, --session and --user; nothing was changed.",
            hint="For example: herma forget --match 'Erika Mustermann' --dry-run",
        )
    (request,) = given
    with bar(context, "Looking through messages") as report:
        plan = job.plan(request, progress=report)
    if dry_run or not context.json:
        _show_plan(context, plan)
    if dry_run:
        if context.json:
            context.print_json({"ok": True, "dry_run": True, **plan.json()})
        context.line("Nothing was changed.")
        if not plan.rows:
            context.exit(1)
        return
    if not plan.rows:
        context.fail("Nothing was found to forget.", "Nothing was changed.", code="not_found")
    if not context.confirm("Remove this for good? It cannot be undone."):
        context.line("Nothing was changed.")
        return
    _forget(context, job, plan.request)


def _forget(context: CommandContext, job: Forgetting, request: ForgetRequest) -> None:
    with bar(context, "Forgetting") as report:
        done = job.run(request, progress=report)
    if context.json:
        context.print_json({"ok": True, "dry_run": False, **done.json()})
    context.line(f"Forgotten: {_numbers(done) or 'nothing was left'}.")
    _show_unreached(context, done)


def _numbers(report: ForgetReport) -> str:
    return ", ".join(f"{layer}: {number:,}" for layer, number in report.removed.items())


def _show_plan(context: CommandContext, plan: ForgetReport) -> None:
    shown = [(row.layer, row.id, row.text) for row in plan.rows]
    context.table(("layer", "id", "text"), shown[:SHOWN], cut=True)
    if len(shown) > SHOWN:
        context.line(f"and {len(shown) - SHOWN:,} more (--json lists all)")
    context.line(_numbers(plan) or "Nothing was found.")
    _show_unreached(context, plan)


def _show_unreached(context: CommandContext, report: ForgetReport) -> None:
    for name in report.unreached:
        context.line(f"  not reached: {name}")
