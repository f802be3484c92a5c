"""`herma models` at the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.homes import Ran
from tests.tiny_bert import write_folder

from herma.cli.main import cli

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Shell:
    home: Path
    folder: Path

    def __call__(self, *words: str, **env: str) -> Ran:
        environ: dict[str, str | None] = {"HERMA_MODELS": str(self.folder), **env}
        result = CliRunner().invoke(cli, ["--home", str(self.home), "models", *words], env=environ)
        return Ran(result.exit_code, result.stdout, result.stderr)

    def installed(self) -> Path:
        """As if e5-small had been installed: another model in its place."""
        place = write_folder(self.folder / "e5-small")
        sizes = {path.name: path.stat().st_size for path in place.iterdir()}
        said = {"name": "e5-small", "revision": "abc", "dimension": 32, "heads": 4, "max_tokens": 24, "pooling": "mean",
                "query_prefix": "", "passage_prefix": "", "multilingual": False, "sizes": sizes}  # fmt: skip
        (place / "herma.json").write_text(json.dumps(said))
        return place


@pytest.fixture
def models(home: Path, tmp_path: Path) -> Shell:
    return Shell(home, tmp_path / "models")


def test_the_list_without_any(models: Shell) -> None:
    ran = models("list")
    assert ran.code == 0
    assert "not installed" in ran.out
    assert "Search uses words alone: e5-small is not installed (herma models install e5-small)." in ran.out
    said = models("list", "--json").json
    assert said["used"] is None
    assert [model["state"] for model in said["models"]] == ["not installed"]


def test_the_list_with_one(models: Shell) -> None:
    models.installed()
    said = models("list", "--json").json
    assert said["used"] == "e5-small:abc"
    assert said["models"][0]["state"] == "installed"
    (models.folder / "e5-small" / "vocab.txt").write_text("")
    assert "damaged" in models("list").out


def test_errors_are_one_sentence_and_a_next_step(models: Shell, tmp_path: Path) -> None:
    ran = models("install", "e6")
    assert ran.code == 2
    assert "e6 is neither a model that Herma knows, nor a folder, nor a model of the hub" in ran.err
    (tmp_path / "junk.whl").write_bytes(b"junk")
    ran = models("install", "e5-small", "--from", str(tmp_path / "junk.whl"))
    assert ran.code == 3
    assert "was not found in what was given, so nothing was installed" in ran.err
    assert "→" in ran.err
    ran = models("install", "e5-small", "--json", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "empty"))
    assert ran.code == 3
    assert ran.json["kind"] == "EmbedderError"
    assert ran.json["hint"]


def test_removing_asks_first(models: Shell) -> None:
    place = models.installed()
    assert models("remove", "e5-small", "--dry-run").code == 0
    assert place.is_dir()
    refused = models("remove", "e5-small")
    assert refused.code == 2
    assert "--yes" in refused.err
    ran = models("remove", "e5-small", "--yes")
    assert ran.code == 0
    assert "herma models install e5-small" in ran.out
    assert not place.exists()
    assert models("remove", "e5-small", "--yes").code == 2


def test_trying_a_model(models: Shell) -> None:
    models.installed()
    ran = models("test", "abc", "abc", "xyz")
    assert ran.code == 0
    assert "32 numbers per vector" in ran.out
    said = models("test", "abc", "abc", "xyz", "--json").json
    assert said["texts"][0] == {"text": "abc", "cosine": 1.0}
    assert said["runner"] == "onnxruntime"


def test_there_is_nothing_to_try(models: Shell) -> None:
    ran = models("test", "a", "b")
    assert ran.code == 3
    assert "No model to test: e5-small is not installed" in ran.err
    ran = models("test", "a", "b", HERMA_EMBEDDING_MODEL="none")
    assert "embedding.model is none" in ran.err
