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
from tests.homes import of_files
from tests.tiny_bert import CONFIG, ENTRIES, LONGEST, WIDTH, write_folder

from herma import Herma
from herma.config import EmbeddingSettings
from herma.errors import EmbedderError
from herma.models.embedder import (
    EndpointEmbedder,
    LocalEmbedder,
    NativeCalls,
    load_tokenizer,
    look,
    make_embedder,
    models_folder,
    read_folder,
)

if TYPE_CHECKING:
    from pathlib import Path

    from herma.search.query import Mode

pytestmark = of_files  # the database makes no difference to a model
REAL_MODELS = models_folder(os.environ)  # before a test gets a user's folder of its own
TEXTS = ["abc", "a b c, d!", "x" * 300, "", "hello there"]


# ── folders ──


def test_a_model_by_its_folder(tmp_path: Path) -> None:
    """Its graph is used, else its weights; both give nearly the same vectors."""
    both = LocalEmbedder(read_folder(write_folder(tmp_path / "my-bert")))
    found = both.passages(TEXTS)
    assert both.name.startswith("my-bert:")
    assert both.dimension == WIDTH
    assert found.shape == (len(TEXTS), WIDTH)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert np.allclose(found[1], both.queries([TEXTS[1]])[0], atol=1e-5)
    assert both.passages([]).shape == (0, WIDTH)
    weights = LocalEmbedder(read_folder(write_folder(tmp_path / "w", graph=False)))
    assert np.allclose(weights.passages(TEXTS), found, atol=1e-5)


def test_prefixes_and_pooling_are_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    plain = LocalEmbedder(read_folder(folder))
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "q ", "document": "d "}}')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    model = read_folder(folder)
    assert (model.query_prefix, model.passage_prefix, model.pooling) == ("q ", "d ", "cls")
    assert model.name != plain.name  # other vectors, another name
    assert not np.allclose(LocalEmbedder(model).queries(["abc"]), plain.queries(["q abc"]))


def test_other_weights_have_another_name_and_some_kinds_only_a_graph_can_run(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    before = read_folder(folder).name
    assert read_folder(folder).name == before
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert read_folder(folder).name != before
    (folder / "config.json").write_text(json.dumps(CONFIG | {"model_type": "mpnet", "max_position_embeddings": None}))
    assert LocalEmbedder(read_folder(folder)).queries(["abc"]).shape == (1, WIDTH)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", json.dumps(CONFIG | {"model_type": "gpt2"}), "not BERT-like"),
        ("config.json", json.dumps(CONFIG | {"hidden_act": "relu"}), "not BERT-like"),
        ("config.json", "{}", "no config.json"),
        ("config.json", "{", "cannot be read"),
        ("config.json", json.dumps(CONFIG | {"hidden_size": None}), "incomplete"),
        ("config.json", json.dumps(CONFIG | {"hidden_size": WIDTH * 2}), f"{WIDTH} numbers instead of {WIDTH * 2}"),
        ("1_Pooling/config.json", '{"pooling_mode_lasttoken": true}', "not supported"),
        ("herma.json", '{"name": "x"}', "incomplete"),
        ("model.safetensors", "nonsense", "not a readable safetensors file"),
        ("model.onnx", "nonsense", "onnxruntime cannot load"),
        ("vocab.txt", "the\nbread\n", r"cannot be read: sep_token not found"),
        ("tokenizer.json", "{", "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = write_folder(tmp_path / "m", graph=file == "model.onnx", weights=file != "model.onnx")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(content)
    with pytest.raises(EmbedderError, match=message):
        LocalEmbedder(read_folder(folder)).queries(["a"])


@pytest.mark.parametrize("library", ["onnxruntime", "tokenizers", "safetensors"])
def test_missing_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    folder = write_folder(tmp_path / "m", graph=library != "safetensors")
    for name in (library, f"{library}.numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EmbedderError, match=f"needs {library}") as caught:
        LocalEmbedder(read_folder(folder)).queries(["a"])
    assert "[local]" in caught.value.hint


def test_missing_files_and_damaged_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="not a folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(EmbedderError, match=r"needs model\.safetensors or model\.onnx"):
        read_folder(write_folder(tmp_path / "m", graph=False, weights=False))
    folder = write_folder(tmp_path / "n")
    (folder / "vocab.txt").unlink()
    with pytest.raises(EmbedderError, match="no tokenizer"):
        LocalEmbedder(read_folder(folder)).queries(["a"])
    path = write_folder(tmp_path / "o", graph=False) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-400] + b"\xff" * 400)  # not a number, in the last layer
    with pytest.raises(EmbedderError, match="not finite"):
        LocalEmbedder(read_folder(path.parent)).queries(["a"])


@pytest.mark.parametrize("form", ["vocab.txt", "tokenizer.json"])
def test_texts_are_tokenised_as_the_model_was_trained(tmp_path: Path, form: str) -> None:
    folder = write_folder(tmp_path / "m")
    if form == "tokenizer.json":
        tokenizer = load_tokenizer(read_folder(folder))
        tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
        tokenizer.save(str(folder / form))
        (folder / "vocab.txt").unlink()
    model = read_folder(folder)
    for text, found in (
        ("The A-B\tab", "t ##h ##e a [UNK] b a ##b"),
        ("\ud800a\u200bb \x00e\u0301", "a ##b e"),
        ("[SEP]", "[UNK] s ##e ##p [UNK]"),  # a text cannot smuggle in a mark of the model
        *(("", ""), ("a" * 101, "[UNK]")),
    ):
        ids = load_tokenizer(model).encode(text.encode("utf-8", "ignore").decode()).ids
        assert [ENTRIES[at] for at in ids] == ["[CLS]", *found.split()[: LONGEST - 2], "[SEP]"]
        assert LocalEmbedder(model).queries([text]).shape == (1, WIDTH)


# ── what is chosen ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_is_chosen_by_name_or_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"HERMA_MODELS": str(tmp_path / "models")}
    auto = make_embedder(EmbeddingSettings(), environ)
    named = make_embedder(EmbeddingSettings(model="e5-small"), environ)
    assert auto.embedder is named.embedder is make_embedder(EmbeddingSettings(model="none"), environ).embedder is None
    assert auto.reason == named.reason == "e5-small is not installed (herma models install e5-small)"
    assert (auto.wanted, named.wanted) == (False, True)
    folder = write_folder(tmp_path / "m")
    assert isinstance(make_embedder(EmbeddingSettings(model=str(folder)), {}).embedder, LocalEmbedder)
    missing = make_embedder(EmbeddingSettings(model=str(tmp_path / "gone")), {})
    assert (missing.embedder, missing.wanted, "gone" in missing.reason) == (None, True, True)
    monkeypatch.setattr("herma.models.embedder.find_spec", lambda _: None)
    without = make_embedder(EmbeddingSettings(), {})
    assert (without.embedder, without.wanted) == (None, False)
    assert without.reason.startswith("numpy and onnxruntime and tokenizers are not installed (")
    assert "[local]" in without.reason


def test_an_endpoint_is_chosen_with_the_key_of_the_environment_or_the_home(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": "endpoint", "url": "http://localhost:1/v1", "endpoint_model": "m"}
    assert isinstance(make_embedder(EmbeddingSettings(**settings), {}).embedder, EndpointEmbedder)
    assert "embedding.url" in make_embedder(EmbeddingSettings(model="endpoint"), {}).reason
    assert "embedding.url" in make_embedder(EmbeddingSettings(**settings | {"url": "file:///etc"}), {}).reason
    keyed = EmbeddingSettings(**settings, api_key_env="A_KEY")
    reason = "The variable A_KEY of embedding.api_key_env is not set"
    assert make_embedder(keyed, {}, home=tmp_path).reason == make_embedder(keyed, {}).reason == reason
    file = tmp_path / ".env"
    file.write_text("A_KEY='from the file'\n", "utf-8")
    file.chmod(0o600)
    for environ, key in (({}, "from the file"), ({"A_KEY": "from outside"}, "from outside")):
        made = make_embedder(keyed, environ, home=tmp_path).embedder
        assert isinstance(made, EndpointEmbedder)
        assert made._key == key


# ── e5-small ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def e5_folder() -> Path:
    for library in ("onnxruntime", "tokenizers"):
        pytest.importorskip(library)
    there = look(REAL_MODELS, "e5-small")
    if there is None or not there.whole:
        reason = "e5-small is not installed: herma models install e5-small"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return there.folder


def test_e5_small_reads_words_as_it_was_taught(e5_folder: Path) -> None:
    tokenizer = load_tokenizer(read_folder(e5_folder))
    expected = {
        "query: Who baked the sourdough?": "101 23032 1024 2040 17776 1996 14768 26797 5603 1029 102",
        "Café naïve — 東京タワー $5.20": "101 7668 15743 1517 1879 1755 1709 30262 30265 1002 1019 1012 2322 102",
        "antidisestablishmentarianism 🙂": "101 3424 10521 4355 7875 13602 3672 12199 2964 100 102",
    }
    assert {text: " ".join(map(str, tokenizer.encode(text).ids)) for text in expected} == expected


def test_e5_small_knows_what_belongs_together_and_cuts_long_texts(e5_folder: Path) -> None:
    embedder = LocalEmbedder(read_folder(e5_folder))
    passages = embedder.passages(
        [
            "We adopted a puppy from the shelter last spring.",
            "The quarterly report is due on Friday.",
            "My sister teaches chemistry at a school in Leeds.",
        ]
    )
    asked = embedder.queries(["When did we get our dog?", "What does my sibling do for a living?"])
    assert (asked @ passages.T).argmax(axis=1).tolist() == [0, 2]
    assert (embedder.name, embedder.is_multilingual) == ("e5-small:e35d844db522", False)
    text = "salt " * 600
    assert np.allclose(embedder.passages([text]), embedder.passages([text + "pepper " * 50]), atol=1e-6)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: embedder.queries([text])[0], TEXTS * 4))
    assert np.allclose(found[: len(TEXTS)], found[-len(TEXTS) :], atol=1e-5), "several threads may use it"


# ── the end of a program ────────────────────────────────────────────────────────────────────────────────────────


CUT_SHORT = """
import sys, threading
from herma.models.embedder import LocalEmbedder, read_folder
from pathlib import Path

begun, released = threading.Event(), threading.Event()
embedder = LocalEmbedder(read_folder(Path(sys.argv[1])))
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
    calls = NativeCalls()
    calls.end()  # nothing was called: nothing to wait for
    with calls.one():
        pass
    calls.end()
    with pytest.raises(EmbedderError, match="ending"), calls.one():
        pass


# ── what search shows of a small home: by words, and with e5-small ──

GREETINGS = (
    *("hello", "Hi there!", "good morning", "ok", "thanks!", "Thank you so much.", "yes", "great"),
    "bye, see you tomorrow",
)
DEPLOY = "How do I deploy the web app to staging?"
FACTS = (
    "I moved to Lisbon in May and rent a flat near the river.",
    "My dentist appointment is on Friday at nine.",
    "The printer on the second floor jams every morning.",
    "We chose walnut for the kitchen table.",
)
NONSENSE = ("asdfghjkl", "qwpzx vbnml", "xyzzy plugh frobnicate", "zzzz", "flibber", "12345")


@pytest.mark.parametrize("messages", [(*GREETINGS, DEPLOY), (*GREETINGS, DEPLOY, *FACTS), FACTS, ("ok",)])
def test_nonsense_finds_nothing(home: Path, e5_folder: Path, messages: tuple[str, ...]) -> None:
    with _told(home, e5_folder, messages) as h:
        ways: tuple[Mode, ...] = ("words", "hybrid")
        for by in ways:
            found = {text: [hit.snippet for hit in h.search(text, level="message", mode=by).hits] for text in NONSENSE}
            assert not any(found.values()), found


def test_what_is_near_in_meaning_is_nearer_than_usual(home: Path, e5_folder: Path) -> None:
    with _told(home, e5_folder, (*GREETINGS, DEPLOY, *FACTS)) as h:
        for asked, by_words, by_meaning in (
            ("deploy", [DEPLOY], [DEPLOY]),
            ("ok", ["ok"], ["ok"]),
            ("release the software", [], [DEPLOY]),
            ("where do I live?", [], [FACTS[0]]),
            ("teeth", [], [FACTS[1]]),
            ("When do I see the dentist?", [FACTS[1]], [FACTS[1]]),
            ("which wood is the table made of?", [FACTS[3]], [FACTS[3]]),
            ("what is the capital of Norway?", [], []),
            ("kubernetes", [], []),
        ):
            ways: tuple[tuple[Mode, list[str]], ...] = (("words", by_words), ("hybrid", by_meaning))
            for mode, expected in ways:
                hits = h.search(asked, level="message", mode=mode).hits
                plain = [hit.snippet.replace(">>>", "").replace("<<<", "") for hit in hits]
                assert plain[: len(expected)] == expected, (asked, mode)
                assert expected or not plain, (asked, mode)
                assert not {*plain} & {*GREETINGS} - {"ok", "great", "yes"}, (asked, mode)


def _told(home: Path, e5_folder: Path, messages: tuple[str, ...]) -> Herma:
    h = Herma.open(home=home, embedder=LocalEmbedder(read_folder(e5_folder)), flags={"search.model_wait": 60.0})
    for text in messages:
        h.transcripts.append(h.transcripts.start("cli"), [{"role": "user", "content": text}])
    assert h.index.wait(embedding=True)
    return h
