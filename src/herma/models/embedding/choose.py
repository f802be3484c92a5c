"""Which embedder the configuration asks for, and why there is none when there is none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from herma.errors import ConfigError, EmbedderError
from herma.models.embedding.catalogue import RECIPES, models_folder
from herma.models.embedding.endpoint import Endpoint, EndpointEmbedder
from herma.models.embedding.folder import read_folder
from herma.models.embedding.install import look
from herma.models.embedding.local import LocalEmbedder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herma.ports import Embedder
    from herma.settings import EmbeddingSettings

AUTOMATIC = "e5-small"


@dataclass(frozen=True, slots=True)
class Choice:
    """An embedder; or none, and the reason. `wanted`: it is missing although it was asked for by name."""

    embedder: Embedder | None
    reason: str = ""
    wanted: bool = False


def make_embedder(
    settings: EmbeddingSettings, environ: Mapping[str, str] = os.environ, *, home: Path | None = None
) -> Choice:
    """What `embedding.model` stands for on this machine. Loads nothing yet, asks nobody; never raises. The key of an
    endpoint may be in the `.env` of `home`, as those of language models may.
    """
    model = settings.model.strip()
    if model == "none":
        return Choice(None, "embedding.model is none")
    if find_spec("numpy") is None:
        return Choice(None, "numpy is not installed (pip install 'herma[local]')", wanted=model != "auto")
    try:
        if model == "endpoint":
            return Choice(EndpointEmbedder(_endpoint(settings, environ, home)))
        if model in ("auto", *RECIPES):
            return _installed(model, settings, environ)
        return Choice(LocalEmbedder(read_folder(Path(model).expanduser()), threads=settings.threads))
    except (EmbedderError, ConfigError) as exc:
        return Choice(None, str(exc).rstrip("."), wanted=True)


def _installed(model: str, settings: EmbeddingSettings, environ: Mapping[str, str]) -> Choice:
    name = AUTOMATIC if model == "auto" else model
    there = look(models_folder(environ), name)
    if there is None:
        return Choice(None, f"{name} is not installed (herma models install {name})", wanted=model != "auto")
    if not there.whole:
        return Choice(None, f"{name} is damaged (herma models install {name})", wanted=True)
    return Choice(LocalEmbedder(read_folder(there.folder), threads=settings.threads))


def _endpoint(settings: EmbeddingSettings, environ: Mapping[str, str], home: Path | None) -> Endpoint:
    if not settings.url.startswith(("https://", "http://")) or not settings.endpoint_model:
        raise EmbedderError("embedding.model is endpoint, which needs embedding.url and embedding.endpoint_model")
    key = environ.get(settings.api_key_env, "") if settings.api_key_env else ""
    if settings.api_key_env and not key and home is not None:
        from herma.models.chat.keys import read_key

        key = read_key(settings.api_key_env, home, environ)
    if settings.api_key_env and not key:
        raise EmbedderError(f"The variable {settings.api_key_env} of embedding.api_key_env is not set")
    return Endpoint(
        url=settings.url,
        model=settings.endpoint_model,
        api_key=key,
        key_variable=settings.api_key_env,
        dimensions=settings.dimensions,
        batch=settings.batch,
        timeout=settings.timeout,
        query_prefix=settings.query_prefix,
        passage_prefix=settings.passage_prefix,
        multilingual=settings.multilingual,
    )
