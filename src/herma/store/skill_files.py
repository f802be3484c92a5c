"""Skills as folders: the home's own under `skills/`, and folders elsewhere that are only read.

A folder with a SKILL.md in it is a skill; the folders above it are its category. Nothing is read through a link that
leads out of where it lies.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from herma.errors import StoreError
from herma.ports.skills import ArchivedSkill, Shelf, UnsafePath
from herma.store.atomic import flags
from herma.store.sqlite.skills import SkillRows
from herma.types import SUPPORT_FOLDERS, Skill, SkillFile, UnreadableSkill

ARCHIVE = ".archive"
DOCUMENT = "SKILL.md"
Reader = Callable[[bytes, str, str], Skill | UnreadableSkill]
_DEEPEST = 4
_MOST_SKILLS = 5_000
_MOST_FILES = 500
_MOST_BYTES = 2**20
_SKIPPED = {"node_modules", "venv", "env", "__pycache__", "site-packages", *SUPPORT_FOLDERS}
_Stamp = tuple[int, int, int]


class SkillFiles:
    """Implements `SkillFolders`. `reader` makes a skill of the bytes of a SKILL.md."""

    def __init__(self, home: Path, rows: SkillRows, reader: Reader, external: Sequence[Path] = ()) -> None:
        self.root = home / "skills"
        self._rows = rows
        self._reader = reader
        self._external = tuple(external)
        self._cache: dict[str, tuple[_Stamp, Skill | UnreadableSkill]] = {}

    # ── reading ──

    def look(self) -> Shelf:
        skills: list[Skill] = []
        refused: list[UnreadableSkill] = []
        about: dict[str, str] = {}
        seen: set[str] = set()
        stamps = sha256()
        for base in (self.root, *self._external):
            root = "" if base is self.root else str(base)
            for found in self._walk(base, root, stamps, about):
                if isinstance(found, UnreadableSkill):
                    refused.append(found)
                elif root and found.name in seen:
                    refused.append(UnreadableSkill(found.path, "another skill of this name comes first", root))
                else:
                    skills.append(found)
            seen = {skill.name for skill in skills}
        return Shelf(tuple(skills), tuple(refused), about, stamps.hexdigest()[:16])

    def files(self, skill: Skill, *, texts: bool = True) -> list[SkillFile]:
        base = self._folder(skill)
        return [_described(base, path, texts=texts) for path in list_files(base)]

    def read(self, skill: Skill, file: str) -> bytes | None:
        path = inside(self._folder(skill), file)
        try:
            return read_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise StoreError(f"{path} cannot be read: {exc.strerror or exc}.") from exc

    def archived(self) -> list[ArchivedSkill]:
        known = self._rows.archived_from()
        found = []
        for folder in _folders(self.root / ARCHIVE):
            name = f"{ARCHIVE}/{folder.name}"
            read = self._read_skill(folder, name, "")
            if read is None:
                continue
            skill_name = read.name if isinstance(read, Skill) else folder.name
            path, at = known.get(name, (skill_name, None))
            found.append(ArchivedSkill(skill_name, name, path, at))
        return found

    def where(self, skill: Skill) -> str:
        return str(self._folder(skill))

    # ── steps ──

    def _folder(self, skill: Skill) -> Path:
        return inside(Path(skill.root) if skill.root else self.root, skill.path)

    def _walk(self, base: Path, root: str, stamps: object, about: dict[str, str]) -> Iterator[Skill | UnreadableSkill]:
        if not base.is_dir():
            if root:
                yield UnreadableSkill("", "the folder is not there", root)
            return
        real = Path(os.path.realpath(base))
        count = 0
        stack = [(base, "")]
        while stack and count < _MOST_SKILLS:
            folder, path = stack.pop()
            for child in _folders(folder):
                below = f"{path}/{child.name}" if path else child.name
                if child.name.startswith(".") or child.name in _SKIPPED:
                    continue
                if child.is_symlink() and not _is_within(Path(os.path.realpath(child)), real):
                    reason = "a link that leads out of the skills folder; name its target in skills.external_dirs"
                    yield UnreadableSkill(below, reason, root)
                    continue
                found = self._read_skill(child, below, root, stamps)
                if found is not None:
                    count += 1
                    yield found
                elif below.count("/") + 1 < _DEEPEST:
                    stack.append((child, below))
                    if (text := _description(child)) and below not in about:
                        about[below] = text

    def _read_skill(self, folder: Path, path: str, root: str, stamps: object = None) -> Skill | UnreadableSkill | None:
        """The skill in a folder, read anew only when its file changed. None: it is no skill."""
        document = folder / DOCUMENT
        try:
            status = document.lstat()
        except OSError:
            return None
        if stat.S_ISLNK(status.st_mode):
            if not _is_within(Path(os.path.realpath(document)), Path(os.path.realpath(folder))):
                return UnreadableSkill(path, "its SKILL.md is a link that leads out of the skill", root)
            try:
                status = document.stat()
            except OSError:
                return UnreadableSkill(path, "its SKILL.md is a link that leads nowhere", root)
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if isinstance(stamps, _Hash):
            stamps.update(f"{root}\0{path}\0{stamp}\n".encode("utf-8", "surrogatepass"))
        key = str(document)
        kept = self._cache.get(key)
        if kept is None or kept[0] != stamp:
            kept = (stamp, self._made(document, path, root, status))
            self._cache[key] = kept
        return kept[1]

    def _made(self, document: Path, path: str, root: str, status: os.stat_result) -> Skill | UnreadableSkill:
        try:
            path.encode()
        except UnicodeEncodeError:
            shown = path.encode("utf-8", "backslashreplace").decode()
            return UnreadableSkill(shown, "the name of its folder is not text", root)
        if status.st_size > _MOST_BYTES:
            return UnreadableSkill(path, f"it has {status.st_size:,} bytes; {_MOST_BYTES:,} are the limit", root)
        try:
            return self._reader(read_regular(document), path, root)
        except OSError as exc:
            return UnreadableSkill(path, f"it cannot be read: {exc.strerror or exc}", root)


_Hash = type(sha256())


def external_folders(home: Path, named: str) -> list[Path]:
    """The folders that a setting names, separated by commas; `~` and variables are understood."""
    parts = [part.strip() for part in named.split(",") if part.strip()]
    return [home / Path(os.path.expandvars(part)).expanduser() for part in parts]


# ── paths ──


def inside(base: Path, relative: str, *, to_write: bool = False) -> Path:
    """`base/relative`, if that is where it really lies. `UnsafePath` otherwise.

    To be written, no part of it may differ from what is there in case alone: other systems would take it for that.
    """
    parts = relative.split("/")
    bad = not relative or "\\" in relative or "\x00" in relative or any(part in ("", ".", "..") for part in parts)
    if bad or relative.startswith(("/", "~")) or (len(parts[0]) > 1 and parts[0][1] == ":"):
        raise UnsafePath(f"{relative!r} leads out of the skill.", hint="Give a path inside it.")
    path = base
    for part in parts:
        if to_write and not os.path.lexists(path / part):
            _check_case(path, part, relative)
        path = path / part
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(base))
    if not _is_within(real, root):
        raise UnsafePath(f"{relative!r} is a link that leads out of the skill.", hint="Remove the link.")
    if to_write and path.is_symlink():
        raise UnsafePath(f"{relative!r} is a link; it is not written through.", hint="Remove the link.")
    return path


def _check_case(folder: Path, name: str, relative: str) -> None:
    try:
        with os.scandir(folder) as entries:
            same = next((entry.name for entry in entries if _folded(entry.name) == _folded(name)), None)
    except OSError:
        return
    if same is not None and same != name:
        raise UnsafePath(
            f"{relative!r} differs from {same!r}, which is there, in nothing but case.", hint="Choose another name."
        )


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _is_within(path: Path, root: Path) -> bool:
    return path == root or path.is_relative_to(root)


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder, by name; links to folders are among them."""
    try:
        with os.scandir(folder) as entries:
            return sorted((Path(entry.path) for entry in entries if entry.is_dir()), key=lambda path: path.name)
    except OSError:
        return []


def list_files(base: Path) -> list[str]:
    """Paths of the files of a skill, SKILL.md first; those of links to folders as the links themselves."""
    found: list[str] = []
    stack = [""]
    while stack and len(found) < _MOST_FILES:
        below = stack.pop()
        try:
            with os.scandir(base / below) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in listed:
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.name.startswith(".") or entry.name in ("__pycache__", "node_modules"):
                continue
            if entry.is_dir(follow_symlinks=False):
                stack.append(path)
            else:
                found.append(path)
    return sorted(found, key=lambda path: (path != DOCUMENT, path))


def _described(base: Path, file: str, *, texts: bool) -> SkillFile:
    path = base / file
    link = ""
    if path.is_symlink():
        real = Path(os.path.realpath(path))
        link = "?" if not real.exists() else "" if _is_within(real, Path(os.path.realpath(base))) else str(real)
    if link or not path.is_file():
        return SkillFile(file, 0, link=link or "?")
    try:
        status = path.stat()
        text = _text(path) if texts and status.st_size <= 4 * _MOST_BYTES else None
    except OSError:
        return SkillFile(file, 0, link="?")
    return SkillFile(file, status.st_size, text, executable=bool(status.st_mode & 0o111))


def _text(path: Path) -> str | None:
    data = read_regular(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def read_regular(path: Path) -> bytes:
    """The bytes of an ordinary file; a pipe or a device could keep us waiting for ever."""
    handle = os.open(os.path.realpath(path), flags("O_RDONLY", "O_NONBLOCK", "O_NOFOLLOW"))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not an ordinary file")
        return file.read(64 * _MOST_BYTES)


def _description(folder: Path) -> str:
    """What DESCRIPTION.md says about a category: its description, else its first line."""
    try:
        text = _text(folder / "DESCRIPTION.md") or ""
    except OSError:
        return ""
    for line in text.split("\n"):
        if line.startswith("description:"):
            return line.removeprefix("description:").strip().strip("\"'")[:300]
    first = next((line for line in text.split("\n") if line.strip() and line.strip() != "---"), "")
    return first.lstrip("# ").strip()[:300]
