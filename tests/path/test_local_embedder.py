"""Models on this machine: folders from elsewhere, what is chosen by the configuration, and e5-small itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.tiny_bert import CONFIG, WIDTH, write_folder

from herma.config import EmbeddingSettings
from herma.errors import EmbedderError
from herma.models.bert import read_vocabulary
from herma.models.embedder import (
    EndpointEmbedder,
    LocalEmbedder,
    NativeCalls,
    make_embedder,
    models_folder,
    read_folder,
    together,
)
from herma.models.install import look

if TYPE_CHECKING:
    from pathlib import Path

REAL_MODELS = models_folder(os.environ)  # before a test gets a user's folder of its own
TEXTS = ["abc", "a b c, d!", "x" * 300, "", "hello there"]


# ── folders ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("runner", ["numpy", "onnxruntime"])
def test_a_model_by_its_folder(tmp_path: Path, runner: str) -> None:
    pytest.importorskip(runner)
    embedder = LocalEmbedder(read_folder(write_folder(tmp_path / "my-bert")), threads=2, runner=runner)
    found = embedder.passages(TEXTS)
    assert embedder.runner == runner
    assert embedder.name.startswith("my-bert:")
    assert embedder.dimension == WIDTH
    assert found.shape == (len(TEXTS), WIDTH)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert np.allclose(found[1], embedder.queries([TEXTS[1]])[0], atol=1e-5)
    assert embedder.passages([]).shape == (0, WIDTH)


def test_both_runners_agree(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = read_folder(write_folder(tmp_path / "m"))
    one, other = (LocalEmbedder(model, runner=runner).passages(TEXTS) for runner in ("numpy", "onnxruntime"))
    assert (one * other).sum(axis=1).min() > 0.99


def test_without_onnxruntime_numpy_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert LocalEmbedder(read_folder(write_folder(tmp_path / "m"))).runner == "numpy"
    with pytest.raises(EmbedderError, match="needs onnxruntime"):
        LocalEmbedder(read_folder(write_folder(tmp_path / "g", weights=False))).queries(["a"])


def test_a_graph_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    folder = write_folder(tmp_path / "m", weights=False)
    (folder / "model.onnx").write_bytes(b"nonsense")
    with pytest.raises(EmbedderError, match="onnxruntime cannot load"):
        LocalEmbedder(read_folder(folder)).queries(["a"])


def test_prefixes_and_pooling_are_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    plain = LocalEmbedder(read_folder(folder), runner="numpy")
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "q ", "document": "d "}}')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    model = read_folder(folder)
    assert (model.query_prefix, model.passage_prefix, model.pooling) == ("q ", "d ", "cls")
    assert model.name != plain.name  # other vectors, another name
    asked = LocalEmbedder(model, runner="numpy").queries(["abc"])
    assert not np.allclose(asked, plain.queries(["q abc"]))


def test_other_weights_have_another_name(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    before = read_folder(folder).name
    assert read_folder(folder).name == before
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert read_folder(folder).name != before


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", json.dumps(CONFIG | {"model_type": "gpt2"}), "not BERT-like"),
        ("config.json", json.dumps(CONFIG | {"hidden_act": "relu"}), "not BERT-like"),
        ("config.json", "{}", "no config.json"),
        ("config.json", "{", "cannot be read"),
        ("config.json", json.dumps(CONFIG | {"hidden_size": None}), "incomplete"),
        ("tokenizer_config.json", '{"do_lower_case": false}', "upper from lower case"),
        ("herma.json", '{"name": "x"}', "incomplete"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / file).write_text(content)
    with pytest.raises(EmbedderError, match=message):
        read_folder(folder)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="no folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(EmbedderError, match=r"neither model\.safetensors nor model\.onnx"):
        read_folder(write_folder(tmp_path / "m", graph=False, weights=False))
    folder = write_folder(tmp_path / "n")
    (folder / "vocab.txt").unlink()
    with pytest.raises(EmbedderError, match="no vocabulary"):
        LocalEmbedder(read_folder(folder)).queries(["a"])


def test_damaged_weights_are_noticed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", graph=False)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-400] + b"\xff" * 400)  # not a number, in the last layer
    with pytest.raises(EmbedderError, match="computes nonsense"):
        LocalEmbedder(read_folder(folder)).queries(["a"])


def test_several_threads_may_use_it(tmp_path: Path) -> None:
    embedder = LocalEmbedder(read_folder(write_folder(tmp_path / "m")))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: embedder.queries([text])[0], TEXTS * 4))
    assert np.allclose(found[: len(TEXTS)], found[-len(TEXTS) :], atol=1e-5)


def test_texts_go_together_up_to_a_number_of_tokens() -> None:
    texts = [[1] * size for size in (3, 3, 5, 20, 1, 1)]
    assert list(together(texts, 8)) == [[0, 1], [2], [3], [4, 5]]
    assert list(together([], 8)) == []


# ── what is chosen ──────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_chosen_where_nothing_is_installed(tmp_path: Path) -> None:
    environ = {"HERMA_MODELS": str(tmp_path / "models")}
    auto = make_embedder(EmbeddingSettings(), environ)
    named = make_embedder(EmbeddingSettings(model="e5-small"), environ)
    assert auto.embedder is named.embedder is make_embedder(EmbeddingSettings(model="none"), environ).embedder is None
    assert auto.reason == named.reason == "e5-small is not installed (herma models install e5-small)"
    assert (auto.wanted, named.wanted) == (False, True)


def test_a_folder_is_chosen_by_its_path(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    choice = make_embedder(EmbeddingSettings(model=str(folder)), {})
    assert isinstance(choice.embedder, LocalEmbedder)
    missing = make_embedder(EmbeddingSettings(model=str(tmp_path / "gone")), {})
    assert missing.embedder is None
    assert missing.wanted
    assert "gone" in missing.reason


def test_the_key_of_an_endpoint_may_be_in_the_homes_env_file(tmp_path: Path) -> None:
    settings = EmbeddingSettings(
        model="endpoint", url="http://localhost:1/v1", endpoint_model="m", api_key_env="A_HOMELY_KEY"
    )
    assert make_embedder(settings, {}, home=tmp_path).embedder is None
    file = tmp_path / ".env"
    file.write_text("A_HOMELY_KEY='from the file'\n", "utf-8")
    file.chmod(0o600)
    for environ, key in (({}, "from the file"), ({"A_HOMELY_KEY": "from outside"}, "from outside")):
        made = make_embedder(settings, environ, home=tmp_path).embedder
        assert isinstance(made, EndpointEmbedder)
        assert made.endpoint.api_key == key


def test_an_endpoint_is_chosen() -> None:
    settings: dict[str, Any] = {"model": "endpoint", "url": "http://localhost:1/v1", "endpoint_model": "m"}
    assert isinstance(make_embedder(EmbeddingSettings(**settings), {}).embedder, EndpointEmbedder)
    keyed = EmbeddingSettings(**settings, api_key_env="A_KEY")
    made = make_embedder(keyed, {"A_KEY": "k"}).embedder
    assert isinstance(made, EndpointEmbedder)
    assert made.endpoint.api_key == "k"
    assert make_embedder(keyed, {}).reason == "The variable A_KEY of embedding.api_key_env is not set"
    assert "embedding.url" in make_embedder(EmbeddingSettings(model="endpoint"), {}).reason
    assert "embedding.url" in make_embedder(EmbeddingSettings(**settings | {"url": "file:///etc"}), {}).reason


def test_without_numpy_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herma.models.embedder.find_spec", lambda _: None)
    choice = make_embedder(EmbeddingSettings(), {})
    assert choice.embedder is None
    assert "numpy" in choice.reason
    assert not choice.wanted


# ── e5-small ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def e5_folder() -> Path:
    there = look(REAL_MODELS, "e5-small")
    if there is None or not there.whole:
        reason = "e5-small is not installed: herma models install e5-small"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return there.folder


def test_e5_small_reads_words_as_it_was_taught(e5_folder: Path) -> None:
    words = read_vocabulary(e5_folder / "vocab.txt")
    expected = {
        "query: Who baked the sourdough?": [101, 23032, 1024, 2040, 17776, 1996, 14768, 26797, 5603, 1029, 102],
        "Café naïve — 東京タワー $5.20": [
            101,
            7668,
            15743,
            1517,
            1879,
            1755,
            1709,
            30262,
            30265,
            1002,
            1019,
            1012,
            2322,
            102,
        ],
        "antidisestablishmentarianism 🙂": [101, 3424, 10521, 4355, 7875, 13602, 3672, 12199, 2964, 100, 102],
    }
    assert {text: words.encode(text, 512) for text in expected} == expected


@pytest.mark.parametrize("runner", ["numpy", "onnxruntime"])
def test_e5_small_knows_what_belongs_together(e5_folder: Path, runner: str) -> None:
    pytest.importorskip(runner)
    embedder = LocalEmbedder(read_folder(e5_folder), runner=runner)
    passages = embedder.passages(
        [
            "We adopted a puppy from the shelter last spring.",
            "The quarterly report is due on Friday.",
            "My sister teaches chemistry at a school in Leeds.",
        ]
    )
    asked = embedder.queries(["When did we get our dog?", "What does my sibling do for a living?"])
    assert (asked @ passages.T).argmax(axis=1).tolist() == [0, 2]
    assert embedder.name == "e5-small:e35d844db522"
    assert not embedder.is_multilingual


def test_both_runners_of_e5_small_agree(e5_folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    texts = ["A short one.", "Where did I put the keys? " * 8, "Rain is likely in the north tomorrow."]
    model = read_folder(e5_folder)
    one, other = (LocalEmbedder(model, runner=runner).passages(texts) for runner in ("numpy", "onnxruntime"))
    assert (one * other).sum(axis=1).min() > 0.98


def test_a_long_text_is_cut(e5_folder: Path) -> None:
    embedder = LocalEmbedder(read_folder(e5_folder))
    text = "salt " * 600
    assert np.allclose(embedder.passages([text]), embedder.passages([text + "pepper " * 50]), atol=1e-6)


# ── the end of a program ────────────────────────────────────────────────────────────────────────────────────────


CUT_SHORT = """
import sys, threading
from herma.models.embedder import read_folder
from herma.models.embedder import LocalEmbedder
from pathlib import Path

begun, released = threading.Event(), threading.Event()
embedder = LocalEmbedder(read_folder(Path(sys.argv[1])), runner="numpy")
loading = embedder._load


def slowly():
    begun.set()
    released.wait(0.3)
    loaded = loading()
    print("loaded", flush=True)
    return loaded


embedder._load = slowly
threading.Thread(target=embedder.queries, args=(["a"],), daemon=True).start()
begun.wait()
"""


def test_the_end_of_a_program_waits_for_the_model(tmp_path: Path) -> None:
    """A thread cut off inside of onnxruntime would end the process with an abort."""
    folder = write_folder(tmp_path / "m")
    done = subprocess.run(
        [sys.executable, "-c", CUT_SHORT, str(folder)], capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", "loaded")


def test_no_call_begins_while_the_program_ends() -> None:
    calls = NativeCalls()
    calls.end()  # nothing was called: nothing to wait for
    with calls.one():
        pass
    calls.end()
    with pytest.raises(EmbedderError, match="ending"), calls.one():
        pass
