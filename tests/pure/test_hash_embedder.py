"""The embedder for tests keeps what the port promises."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from herma.testing import HashEmbedder

if TYPE_CHECKING:
    from herma.models.embedder import Embedder


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_every_text_gets_one_vector_of_length_one_that_depends_on_it_alone(texts: list[str]) -> None:
    embedder: Embedder = HashEmbedder(32)
    vectors = embedder.passages(texts)
    assert vectors.shape == (len(texts), 32)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert np.array_equal(embedder.queries(texts[-1:])[0], vectors[-1])


def test_it_is_the_same_in_every_process() -> None:
    code = "from herma.testing import HashEmbedder; print(HashEmbedder(8).queries(['naïve 東京'])[0].tolist())"
    env = {"PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{HashEmbedder(8).queries(['naïve 東京'])[0].tolist()}\n"


def test_what_shares_words_is_near() -> None:
    texts = ["when does the train leave", "The train leaves at nine.", "Bread needs salt."]
    embedder = HashEmbedder()
    asked, near, far = embedder.queries(texts)
    assert asked @ near > 0.4
    assert abs(asked @ far) < 0.2
    assert embedder.seen == texts
    assert HashEmbedder(8, name="other").name == "other-8"
