"""`herma claw`: move memory, skills, sessions and keys from OpenClaw, once; with `--source ~/.hermes`, from Hermes.

A `Migration` goes through the source in fixed steps. With `dry_run` the same steps run and write nothing: the preview
is what would be done. Every file of the source is accounted for by an `MigrationItem` of the report.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import click

from herma import config
from herma.cli.context import (
    CommandContext,
    HermaGroup,
    dry_run_option,
    for_people_only,
    pass_context,
    with_home,
    yes_option,
)
from herma.cli.output import count
from herma.connect import edits
from herma.errors import HermaError
from herma.importers.base import items, json_beside, mapping, moment, string, whole
from herma.importers.exports.openclaw import FOLDERS
from herma.importers.notes import markdown_entries
from herma.importers.pipeline import Imports
from herma.memory.entries import used
from herma.models import endpoints
from herma.safety.scan import scan
from herma.skills.rows import SkillRefused, SkillUsageRows, SkillWritten
from herma.store import backup
from herma.store.files import make_folder, plain_yaml, replace_file
from herma.transcript.transfer import Redactor
from herma.types import Add, Target

if TYPE_CHECKING:
    from herma.app import Herma

Status: TypeAlias = Literal["migrated", "planned", "archived", "skipped", "conflict", "refused", "left"]
Conflict: TypeAlias = Literal["skip", "overwrite", "rename"]
WORKSPACES = ("workspace", "workspace.default", "workspace-main", "workspace-assistant")
SECRETS = (
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "XAI_API_KEY",
    "DEEPSEEK_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "VOYAGE_API_KEY", "TELEGRAM_BOT_TOKEN", "ELEVENLABS_API_KEY",
)  # fmt: skip
"""The only variables that `--migrate-secrets` copies."""
SETTINGS = (
    "memory.memory_enabled", "memory.user_profile_enabled", "memory.memory_char_limit", "memory.user_char_limit",
    "memory.provider", "memory.nudge_interval", "memory.write_approval",
)  # fmt: skip
"""Settings of Hermes that have the same name and meaning here."""
PROVIDERS = ("honcho", "mem0", "hindsight", "retaindb", "byterover", "supermemory", "openviking")
_SECRET_NAME = re.compile(
    r"key|token|secret|passw|passphrase|pwd|credential|creds|authorization|bearer|cookie|private", re.IGNORECASE
)
_STRUCTURED = (".json", ".json5", ".yaml", ".yml", ".toml")
_ARCHIVED = (".md", ".json", ".json5", ".yaml", ".yml", ".toml", ".txt", ".sh", ".py", ".js", ".ts")
_LARGEST = 1 << 20
_BULK = {"node_modules", ".git", "cache", ".cache", "logs", "media", "sandboxes", "browser", "venv", ".venv"}
_DAILY = re.compile(r"\d{4}-\d{2}-\d{2}")


class MigrationItem(NamedTuple):
    """The plan for one file, entry or skill."""

    kind: str
    source: str
    destination: str
    status: Status
    reason: str = ""


class MigrationOptions(NamedTuple):
    """The options of `herma claw migrate`."""

    preset: Literal["full", "user-data"] = "full"
    overwrite: bool = False
    secrets: bool = False
    skills: Conflict = "skip"
    workspace_target: Path | None = None


def sources(home: Path) -> list[Path]:
    """Return the folders in which OpenClaw, under any of its names, keeps its state."""
    return [home / name for name in FOLDERS if (home / name).is_dir()]


def masked(value: Any, name: str = "", redactor: Redactor | None = None) -> Any:
    """Return a value with credentials replaced, found by the name of their key and by their shape, at any depth."""
    redactor, secret = redactor or Redactor(), _is_secret(name)
    if isinstance(value, Mapping):
        return {key: masked(inner, name if secret else str(key), redactor) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(inner, name, redactor) for inner in value]
    if secret and isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        return "[redacted]"
    return redactor.value(value, name)


def _is_secret(name: str) -> bool:
    """Return whether a value with this name is a secret."""
    return bool(_SECRET_NAME.search(name)) and not name.lower().endswith(("_env", "tokens", "keywords"))


@dataclass
class Migration:
    """One migration into an opened Herma."""

    app: Herma
    source: Path
    options: MigrationOptions
    dry_run: bool
    items: list[MigrationItem] = field(default_factory=list)
    undo: list[str] = field(default_factory=list)

    def run(self) -> list[MigrationItem]:
        """Go through all steps. → what was done, or would be."""
        self.folder = self.app.home / "migration" / "openclaw" / time.strftime("%Y%m%dT%H%M%S")
        self._seen: set[Path] = set()
        self._copied: dict[Path, bytes] = {}
        self.workspaces = self._workspaces()
        for target in ("memory", "user"):
            self._memory(target)
        self._documents()
        self._skills()
        self._sessions()
        if self.options.preset == "full":
            self._settings()
            self._secrets()
        self._rest()
        return self.items

    def _add(self, kind: str, source: Path | str, destination: object, status: Status, reason: str = "") -> None:
        status = "planned" if self.dry_run and status == "migrated" else status
        self.items.append(MigrationItem(kind, str(source), str(destination), status, reason))
        if isinstance(source, Path):
            self._seen.add(source)

    def _workspaces(self) -> list[Path]:
        """Return the workspaces, that of the configuration first."""
        config = self._config()
        named = string(mapping(mapping(config.get("agents")).get("defaults")).get("workspace"))
        agents = [mapping(one) for one in items(mapping(config.get("agents")).get("list"))]
        named_paths = [named, *(string(one.get("workspace")) for one in agents)]
        found = [Path(text).expanduser() for text in named_paths if text]
        found += [self.source / name for name in WORKSPACES]
        found += sorted(self.source.glob("workspace-*"))
        found += [self.source] if (self.source / "MEMORY.md").is_file() else []
        if (self.source / "memories").is_dir():  # a home of Hermes
            found.append(self.source / "memories")
        return [folder for folder in dict.fromkeys(found) if folder.is_dir()]

    def _config(self) -> dict[str, Any]:
        for name in ("openclaw.json", "clawdbot.json", "moltbot.json"):
            if found := _read_settings(self.source / name):
                return found
        return {}

    # ── memory ──

    def _memory(self, target: Target) -> None:
        """Merge the entries of every workspace; what does not fit, or is refused, is kept in a file and named."""
        limit = self.app.settings.memory.memory_char_limit
        limit = limit if target == "memory" else self.app.settings.memory.user_char_limit
        here = self.app.memory.entries(target)
        known = {" ".join(entry.split()).casefold() for entry in here}
        length, adds, overflow = used(here), [], []
        for file in self._memory_files(target):
            prefix = f"{file.stem[:10]}: " if _DAILY.match(file.stem) else ""
            new = merged = refused = 0
            for text in markdown_entries(file.read_text("utf-8", "replace"), file.name):
                entry = prefix + text if prefix and not _DAILY.match(text) else text
                key = " ".join(entry.split()).casefold()
                merged += key in known
                if key in known:
                    continue
                known.add(key)
                if findings := scan(entry):
                    refused += 1
                    overflow.append(f"{entry}\n(refused by the scanner: {findings[0].why})")
                elif length + len(entry) + 3 > limit:
                    overflow.append(entry)
                else:
                    length += len(entry) + 3 * bool(length)
                    adds.append(Add(entry))
                    new += 1
            reason = f"{count(new, 'entry')} new, {merged} known" + (f", {refused} refused" if refused else "")
            self._add(f"{target} entries", file, f"{target.upper()}.md", "migrated" if new else "skipped", reason)
        if adds and not self.dry_run:
            outcome = self.app.memory.apply(target, adds, reason=f"from {self.source}")
            if not outcome.ok:
                raise HermaError(outcome.message)
            self.undo.append(f"herma undo m{getattr(outcome, 'change', '')}")
        if overflow:
            kept = self.folder / "overflow" / f"{target.upper()}.md"
            self._write(kept, "\n§\n".join(overflow))
            why = f"{count(len(overflow), 'entry')} that did not fit in {limit:,} characters or was refused"
            self._add(f"{target} overflow", f"{target.upper()}.md", kept, "archived", why)

    def _memory_files(self, target: Target) -> Iterator[Path]:
        for folder in self.workspaces:
            main = folder / f"{target.upper()}.md"
            daily = sorted((folder / "memory").rglob("*.md")) if target == "memory" else []
            yield from (file for file in (main, *daily) if file.is_file() and file not in self._seen)

    # ── documents ──

    def _documents(self) -> None:
        for folder in self.workspaces:
            soul = folder / "SOUL.md" if folder.name != "memories" else self.source / "SOUL.md"
            if soul.is_file() and soul not in self._seen:
                self._copy("persona", soul, self.app.home / "SOUL.md")
            agents = folder / "AGENTS.md"
            if agents.is_file() and self.options.workspace_target:
                self._copy("instructions", agents, self.options.workspace_target / "AGENTS.md")

    def _copy(self, kind: str, source: Path, target: Path) -> None:
        data = source.read_bytes()
        if findings := scan(data.decode("utf-8", "replace")):
            self._add(kind, source, target, "refused", f"the scanner objects: {findings[0].why}")
            return
        here = self._copied.get(target, target.read_bytes() if target.exists() else None)
        if here == data:
            self._add(kind, source, target, "skipped", "it is the same here")
            return
        if here is not None and (target in self._copied or not self.options.overwrite):
            self._add(kind, source, target, "conflict", "another one is here; --overwrite replaces it")
            return
        if not self.dry_run:
            self._undo_of(target)
            make_folder(target.parent)
            replace_file(target, data)
        self._copied[target] = data
        self._add(kind, source, target, "migrated")

    def _undo_of(self, target: Path) -> None:
        """Keep a file that is about to be written, and note how it is brought back."""
        if target.exists():
            self._write(kept := self.folder / "backups" / target.name, target.read_bytes())
            kept.chmod(0o600)
            self.undo.append(shlex.join(["cp", str(kept), str(target)]))
        else:
            self.undo.append(shlex.join(["rm", str(target)]))

    # ── skills and sessions ──

    def _skills(self) -> None:
        folders = [self.source / "skills", *(workspace / "skills" for workspace in self.workspaces)]
        for folder in dict.fromkeys(folders):
            for document in sorted(folder.rglob("SKILL.md")) if folder.is_dir() else ():
                if document not in self._seen and not _BULK & set(document.relative_to(folder).parts):
                    self._skill(document.parent)

    def _skill(self, folder: Path) -> None:
        """Install one skill, unless its name is taken; its use comes with it where Hermes counted that."""
        done = self._install(folder, "", rehearsal=self.dry_run)
        if isinstance(done, SkillRefused) and done.kind == "exists":
            if self.options.skills == "rename":
                done = self._install(folder, f"{done.name}-openclaw", rehearsal=self.dry_run)
            elif self.options.skills == "overwrite" or self.options.overwrite:
                done = None if self.dry_run else self._replace(folder, done)
        status: Status = "migrated"
        if isinstance(done, SkillRefused):
            status = "conflict" if done.kind == "exists" else "refused"
        where = f"skills/openclaw-imports/{folder.name}"
        if isinstance(done, SkillWritten):
            self.undo.append(f"herma undo s{done.change}")
            self._use(folder, done.name)
        self._add("skill", folder / "SKILL.md", where, status, done.message if isinstance(done, SkillRefused) else "")
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file not in self._seen:
                self._add("skill file", file, where, status)

    def _replace(self, folder: Path, taken: SkillRefused) -> object:
        """Install a skill in place of one that goes to the archive; that one comes back if the new one is refused."""
        try:
            archived = self.app.skills.archive(taken.name, reason="replaced by a skill of OpenClaw")
        except HermaError as kept:  # it is pinned, or in a folder that is only read
            return replace(taken, message=str(kept))
        if isinstance(done := self._install(folder, "", rehearsal=False), SkillRefused):
            self.app.skills.restore(taken.name)
        elif isinstance(archived, SkillWritten):
            self.undo.append(f"herma undo s{archived.change}")
        return done

    def _use(self, folder: Path, name: str) -> None:
        counted = mapping(json_beside(self.source / "skills" / ".usage.json").get(folder.name))
        uses, views = whole(counted.get("use_count")), whole(counted.get("view_count"))
        if uses or views:
            at = moment(counted.get("last_used_at")) or self.app.clock()
            SkillUsageRows(self.app.db, self.app.settings.profile).count(name, at, uses=uses, views=views)

    def _install(self, folder: Path, name: str, *, rehearsal: bool) -> object:
        done = self.app.skills.install(folder, category="openclaw-imports", name=name, rehearsal=rehearsal)
        return done[0].outcome if done else None

    def _sessions(self) -> None:
        source = "hermes" if (self.source / "state.db").is_file() else "openclaw"
        imports = Imports(self.app)
        try:
            result = imports.run(source, self.source, dry_run=self.dry_run)
        except HermaError as nothing:
            if nothing.code != "not_found":
                raise
            return
        reason = f"{count(result.messages, 'message')} in {count(result.sessions, 'new session')}"
        broken = sum(sum(one.broken.values()) + sum(one.unknown.values()) for one in result.problems)
        reason += f"; {count(broken, 'record')} that could not be used" if broken else ""
        self._add("sessions", f"{self.source} ({count(result.files + result.unchanged, 'file')})", "herma.db",
                  "migrated" if result.messages else "skipped", reason)  # fmt: skip
        imported = set(imports.files(source, self.source))
        for pattern in ("agents/*/sessions/**/*", "agents/*/agent/*.sqlite*", "state.db*", "sessions/*"):
            for file in sorted(self.source.glob(pattern)):
                if file.is_file() and file not in self._seen:
                    done: Status = "migrated" if result.messages else "skipped"
                    known = ("herma.db", done) if file in imported else ("", "left")
                    self._add("session file", file, *known, "" if file in imported else "no transcript")
        if result.batch:
            self.undo.append(f"herma undo i{result.batch}")

    # ── settings and keys ──

    def _settings(self) -> None:
        """Copy the settings of Hermes that have the same name here, and those of its providers without secrets."""
        file = self.source / "config.yaml"
        if not file.is_file():
            return
        from ruamel.yaml.error import YAMLError

        try:
            given = mapping(plain_yaml().load(file.read_text("utf-8", "replace")))
        except YAMLError as exc:
            self._add("settings", file, "", "left", f"it is not plain YAML: {getattr(exc, 'problem', '') or exc}")
            return
        target, known = self.app.home / config.HOME_FILE, config.options()
        for key in SETTINGS:
            section, _, name = key.partition(".")
            value = mapping(given.get(section)).get(name)
            here = config.get(self.app.settings, key) if key in known else None
            if value is None or key not in known or value == here:
                continue
            if here != known[key].default and not self.options.overwrite:
                self._add("setting", key, target, "conflict", f"it is {here!r} here, {value!r} there")
                continue
            if not self.dry_run:
                back = ["set", key, str(here)] if here != known[key].default else ["unset", key]
                self.undo.append(shlex.join(["herma", "config", *back]))
                config.set_value(target, key, str(value).lower() if isinstance(value, bool) else str(value))
            self._add("setting", key, target, "migrated", f"{value!r}")
        for provider in PROVIDERS:
            place = self.source / f"{provider}.json"
            if place.is_file() and not (self.app.home / place.name).exists():
                self._write(self.app.home / place.name, json.dumps(_without_secrets(json_beside(place)), indent=2))
                self._add("provider settings", place, self.app.home / place.name, "migrated", "without secrets")
        self._add("settings", file, "", "left", "other settings have no place here")

    def _secrets(self) -> None:
        file = self.source / ".env"
        given = endpoints.parse(file.read_text("utf-8", "replace")) if file.is_file() else {}
        given |= {key: value for key, value in mapping(self._config().get("env")).items() if isinstance(value, str)}
        given = {key: value for key, value in given.items() if key in SECRETS and value}
        target = self.app.home / ".env"
        text = target.read_text("utf-8") if target.is_file() else ""
        here = endpoints.parse(text)
        for key, value in given.items():
            if not self.options.secrets:
                self._add("key", key, target, "skipped", "--migrate-secrets copies it")
            elif key in here and here[key] != value and not self.options.overwrite:
                self._add("key", key, target, "conflict", "another one is here")
            else:
                kept = [line for line in text.splitlines() if not line.startswith(f"{key}=")]
                text = "\n".join([*kept, f"{key}={value}", ""])
                self._add("key", key, target, "migrated")
        if self.options.secrets and given and not self.dry_run:
            make_folder(target.parent)
            self._undo_of(target)
            replace_file(target, text.encode())
            target.chmod(0o600)
        if file.is_file():
            self._seen.add(file)
            self._add("keys", file, "", "left", "other variables are not copied")

    # ── everything else ──

    def _rest(self) -> None:
        """Archive small text files that have no place here, masked; name everything else."""
        roots = [one for one in self.workspaces if not one.is_relative_to(self.source)]
        found = [(root, file) for root in (self.source, *roots) for file in self._files(root)]
        for root, file in found:
            if file in self._seen:
                continue
            place = file.relative_to(root.parent if root in roots else root)
            if file.is_dir() and not file.is_symlink():
                number = sum(one.is_file() for one in file.rglob("*"))
                self._add("folder", file, "", "left", f"{count(number, 'file')} that no memory needs")
            elif file.is_symlink():
                self._add("link", file, "", "left", "a link is not followed")
            elif not file.is_file() or file.suffix not in _ARCHIVED or file.stat().st_size > _LARGEST:
                self._add("file", file, "", "left", "it has no place here")
            elif (text := _masked_text(file)) is None:
                self._add("file", file, "", "left", "it cannot be read, so secrets in it cannot be masked")
            else:
                target = self.folder / "archive" / place
                self._write(target, text)
                review = "for review; never activated"
                self._add("file", file, target, "archived", review if file.suffix in _STRUCTURED else "no place here")

    def _files(self, folder: Path) -> Iterator[Path]:
        try:
            inside = sorted(folder.iterdir())
        except OSError as exc:
            self._add("folder", folder, "", "left", f"it cannot be read: {exc.strerror}")
            return
        for one in inside:
            if one.is_dir() and not one.is_symlink() and one.name not in _BULK:
                yield from self._files(one)
            else:
                yield one

    def _write(self, path: Path, data: str | bytes) -> None:
        if not self.dry_run:
            make_folder(path.parent)
            replace_file(path, data if isinstance(data, bytes) else data.encode("utf-8", "backslashreplace"))

    def report(self) -> Path:
        """Write the report as JSON and Markdown. → its folder."""
        found = [masked(item._asdict()) for item in self.items]
        self._write(self.folder / "report.json", json.dumps({"source": str(self.source), "items": found}, indent=2))
        names = ("status", "kind", "source", "destination", "reason")
        cells = [[re.sub(r"[\s|]+", " ", str(one[name])) for name in names] for one in found]
        rows = [f"| {' | '.join(row)} |" for row in cells]
        lines = [f"# Migration from {self.source}", "", "| | what | from | to | |", "|---|---|---|---|---|", *rows, ""]
        lines += ["To undo it:", "", *(f"    {command}" for command in reversed(self.undo)), ""] if self.undo else []
        self._write(self.folder / "summary.md", "\n".join(lines))
        return self.folder


def _without_secrets(value: Any) -> Any:
    """Return a value without what `masked` would replace."""
    if isinstance(value, Mapping):
        return {key: _without_secrets(one) for key, one in value.items() if masked(one, str(key)) == one or not
                isinstance(one, str | int)}  # fmt: skip
    return [_without_secrets(one) for one in value] if isinstance(value, list) else value


def _read_settings(file: Path) -> dict[str, Any]:
    """Return what a file with settings says, JSON with comments among it; nothing if it cannot be read."""
    try:
        return mapping(_settings_in(file.read_text("utf-8", "replace"), file))
    except (OSError, ValueError):
        return {}


def _settings_in(text: str, file: Path) -> Any:
    kind = edits.format_of(file.name)
    return plain_yaml().load(text) if kind == "yaml" else edits.get(text, kind, ())


def _masked_text(file: Path) -> str | None:
    """Return a text without secrets; None for settings that cannot be read. Settings with secrets become JSON."""
    from ruamel.yaml.error import YAMLError

    text = file.read_text("utf-8", "replace")
    if file.suffix in _STRUCTURED:
        try:
            value = _settings_in(text, file)
        except (ValueError, YAMLError):
            return None
        shown = masked(value)
        if shown != value:
            return json.dumps(shown, indent=2, ensure_ascii=False, default=str) + "\n"
    lines = []
    for line in text.splitlines():
        name, mark, value = re.match(r"([^:=]{0,200})([:=]?)(.*)", line).groups()  # type: ignore[union-attr]
        word = name.strip(" \t\"'-*`").removeprefix("export ")
        hides = mark and value.strip() and re.fullmatch(r"[\w.-]{1,80}", word) and _is_secret(word)
        lines.append(f"{name}{mark} [redacted]" if hides else line)
    return Redactor().text("\n".join(lines) + "\n")


def running(names: tuple[str, ...] = ("openclaw", "clawdbot", "moltbot")) -> list[str]:
    """Return programs of OpenClaw that run, and services that would start it."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = process.read_bytes().split(b"\0")[:2]
            program = " ".join(Path(word.decode("utf-8", "replace")).name for word in words if word)
            if any(name in program.split() or f"{name}-gateway" in program for name in names):
                found.append(f"process {process.parent.name}: {program}")
    places = (Path.home() / ".config/systemd/user", Path.home() / "Library/LaunchAgents")
    for place in places:
        found += [str(file) for name in names for file in place.glob(f"*{name}*") if file.is_file()]
    return found


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────


@click.group(cls=HermaGroup, order="migrate cleanup")
def claw() -> None:
    """Move from OpenClaw: memory, skills, sessions, and keys if you say so.

    \b
    Examples:
      herma claw migrate --dry-run
      herma claw migrate --yes
      herma claw cleanup
    """


_source_option = click.option(
    "--source", metavar="PATH", help="The folder to read; else ~/.openclaw and its old names."
)


@claw.command()
@_source_option
@click.option("--preset", type=click.Choice(("full", "user-data")), default="full", show_default=True,
              help="user-data leaves out keys and settings.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace what differs here; the old version is kept.")
@click.option("--migrate-secrets", is_flag=True, help="Copy known API keys into the home's .env.")
@click.option("--workspace-target", type=click.Path(path_type=Path), help="Put AGENTS.md into this folder.")
@click.option("--skill-conflict", type=click.Choice(("skip", "overwrite", "rename")), default="skip",
              show_default=True, help="For a skill whose name is taken.")  # fmt: skip
@click.option("--no-backup", is_flag=True, help="Do not make a backup of this home first.")
@dry_run_option
@yes_option
@with_home
def migrate(
    context: CommandContext,
    source: str | None,
    preset: Literal["full", "user-data"],
    overwrite: bool,
    migrate_secrets: bool,
    workspace_target: Path | None,
    skill_conflict: Conflict,
    no_backup: bool,
    dry_run: bool,
) -> None:
    """Show what would be moved, then move it after a yes.

    Conflicts are listed and skipped; everything else is moved. Files without a place in Herma are kept in
    migration/openclaw/ in the home, with a report of every file found. The source is not changed.

    \b
    Examples:
      herma claw migrate --dry-run
      herma claw migrate --source ~/.clawdbot --migrate-secrets
    """
    for_people_only("Moving memory from another program")
    folder, *others = _found(context, source)
    for other in others:
        context.warn(f"{other} is there too; to move it: {context.command('claw', 'migrate', '--source', str(other))}")
    options = MigrationOptions(preset, overwrite, migrate_secrets, skill_conflict, workspace_target)
    for one in running():
        context.warn(f"OpenClaw may be running ({one}). Later changes are not moved; stop it first.")
    preview = Migration(context.h, folder, options, dry_run=True).run()
    if dry_run or not context.json:
        _show(context, folder, preview)
    if dry_run:
        _print(context, preview, dry_run=True)
        context.line("Nothing was changed.")
        return
    if not any(item.status == "planned" for item in preview):
        context.fail(
            "There is nothing to move.", f"Nothing was changed. {folder} has nothing that is not here already."
        )
    if not context.confirm(f"Move this into {context.h.home}?"):
        context.line("Nothing was changed.")
        return
    if not no_backup:
        with suppress(backup.NothingThere):
            made = backup.create(context.h.home, name=time.strftime("before-openclaw-%Y%m%d-%H%M%S"))
            context.line(f"Backup: {made.path}")
            context.line(f"To undo everything: {context.command('backup', 'restore', made.name)}")
    migration = Migration(context.h, folder, options, dry_run=False)
    try:
        done = migration.run()
    finally:  # also if it fails halfway
        place = migration.report()
    _print(context, done, report=str(place), undo=migration.undo)
    context.line(_totals(done))
    context.line(f"Report: {place / 'summary.md'}")
    for command in reversed(migration.undo):
        context.line(f"To undo: {command}")


def _print(context: CommandContext, found: list[MigrationItem], *, dry_run: bool = False, **more: object) -> None:
    if context.json:
        shown = [masked(item._asdict()) for item in found]
        context.print_json({"ok": True, "dry_run": dry_run, "items": shown, **more})


def _found(context: CommandContext, source: str | None) -> list[Path]:
    """Return the folders to read; if there are none, end with a list of the folders that were tried."""
    if source:
        place = Path(source).expanduser().absolute()
        found, looked = ([place] if place.is_dir() else []), str(place)
    else:
        found, looked = sources(Path.home()), ", ".join(str(Path.home() / name) for name in FOLDERS)
    if not found:
        context.fail("OpenClaw was not found.", f"Looked in: {looked}. Nothing was changed.", code="not_found")
    return found


def _show(context: CommandContext, folder: Path, found: list[MigrationItem]) -> None:
    context.line(f"From {folder}:")
    shown = [item for item in found if item.status != "left" and item.kind not in ("session file", "skill file")]
    rows = []
    for item in shown:
        path = Path(item.source)
        rows.append((item.status, item.kind, path.parent.name if item.kind == "skill" else path.name, item.reason))
    context.table(("", "what", "from", ""), rows)
    context.line(_totals(found))


def _totals(found: list[MigrationItem]) -> str:
    totals: dict[str, int] = {}
    for item in found:
        totals[item.status] = totals.get(item.status, 0) + 1
    return ", ".join(f"{number} {status}" for status, number in totals.items()) + "."


@claw.command()
@_source_option
@dry_run_option
@yes_option
@pass_context
def cleanup(context: CommandContext, source: str | None, dry_run: bool) -> None:
    """Rename the folders of OpenClaw, so that it no longer uses them. Nothing is deleted.

    \b
    Examples:
      herma claw cleanup --dry-run
      herma claw cleanup --yes
    """
    moves = []
    for folder in _found(context, source):
        target = folder.with_name(f"{folder.name}.pre-migration")
        number = 2
        while target.exists():
            target, number = folder.with_name(f"{folder.name}.pre-migration-{number}"), number + 1
        moves.append((folder, target))
    for one in running():
        context.warn(f"OpenClaw may be running ({one}): stop it first.")
    for folder, target in moves:
        context.line(f"{folder} → {target}")
    if dry_run or not context.confirm(f"Rename {count(len(moves), 'folder')}?"):
        context.line("Nothing was changed.")
    else:
        for folder, target in moves:
            shutil.move(folder, target)
    if context.json:
        shown = [{"from": str(folder), "to": str(target)} for folder, target in moves]
        context.print_json({"ok": True, "dry_run": dry_run, "renamed": shown})
