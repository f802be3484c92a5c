"""The weights of a BERT-like model, and its arithmetic in numpy alone.

Several texts go through the matrices side by side, one after another in one long row of tokens, and are apart only
where they must be, in attention: nothing is padded, and a text's vectors do not depend on its company.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herma.errors import EmbedderError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: matrices are applied from the right (`x @ matrix`)."""

    qkv: Any
    qkv_bias: Any
    out: Any
    out_bias: Any
    attention_norm: tuple[Any, Any]
    up: Any
    up_bias: Any
    down: Any
    down_bias: Any
    output_norm: tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Bert:
    """A whole encoder, in float32."""

    words: Any
    positions: Any  # with the type of a first sentence added
    norm: tuple[Any, Any]
    layers: tuple[Layer, ...]
    heads: int
    epsilon: float = 1e-12

    @property
    def dimension(self) -> int:
        return int(self.words.shape[1])

    def hidden(self, texts: Sequence[Sequence[int]]) -> list[Any]:
        """For each text's tokens, the vectors of the last layer: (tokens, dimension)."""
        import numpy as np

        ends = np.cumsum([len(tokens) for tokens in texts]).tolist()
        spans = [slice(end - len(tokens), end) for tokens, end in zip(texts, ends, strict=True)]
        x = self.words[np.concatenate([np.asarray(tokens, dtype=np.int64) for tokens in texts])].astype(np.float32)
        for tokens, span in zip(texts, spans, strict=True):
            x[span] += self.positions[: len(tokens)]
        x = _normed(x, self.norm, self.epsilon)
        for layer in self.layers:
            x = self._through(layer, x, spans)
        return [x[span] for span in spans]

    def _through(self, layer: Layer, x: Any, spans: Sequence[slice]) -> Any:
        import numpy as np

        qkv = x @ layer.qkv
        qkv += layer.qkv_bias
        mixed = np.empty_like(x)
        for span in spans:
            mixed[span] = _attention(qkv[span], self.heads)
        mixed = mixed @ layer.out
        mixed += layer.out_bias
        mixed += x
        x = _normed(mixed, layer.attention_norm, self.epsilon)
        wide = x @ layer.up
        wide += layer.up_bias
        out = _gelu(wide) @ layer.down
        out += layer.down_bias
        out += x
        return _normed(out, layer.output_norm, self.epsilon)


def _attention(qkv: Any, heads: int) -> Any:
    import numpy as np

    tokens, width = qkv.shape
    size = width // 3 // heads
    q, k, v = qkv.reshape(tokens, 3, heads, size).transpose(1, 2, 0, 3)
    scores = (q * np.float32(size**-0.5)) @ k.transpose(0, 2, 1)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return (scores @ v).transpose(1, 0, 2).reshape(tokens, heads * size)


def _normed(x: Any, norm: tuple[Any, Any], epsilon: float) -> Any:
    import numpy as np

    x -= x.mean(axis=-1, keepdims=True)
    x /= np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[1]) + np.float32(epsilon))
    x *= norm[0]
    x += norm[1]
    return x


def _gelu(x: Any) -> Any:
    """x · Φ(x). numpy has no error function; this one of Abramowitz and Stegun (7.1.26) is right to 1.5e-7."""
    import numpy as np

    away = np.abs(x)
    away *= np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * away)
    np.multiply(away, away, out=away)
    np.negative(away, out=away)
    np.exp(away, out=away)
    series = t * np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series += np.float32(factor)
        series *= t
    away *= series  # 1 - erf(|x|/√2)
    away *= np.float32(0.5)
    return np.where(x >= 0, x - x * away, x * away)


# ── from tensors, by the names that the format's original gave them ─────────────────────────────────────────────


def assemble(tensors: Mapping[str, Any], *, heads: int, epsilon: float = 1e-12) -> Bert:
    """A model out of tensors with BERT's usual names, whatever prefix they have."""
    marker = "embeddings.word_embeddings.weight"
    prefix = next((name.removesuffix(marker) for name in tensors if name.endswith(marker)), None)
    if prefix is None:
        raise EmbedderError("These weights are not of a BERT-like model: they have no embeddings.word_embeddings.")

    def get(name: str) -> Any:
        try:
            return tensors[prefix + name]
        except KeyError as exc:
            raise EmbedderError(f"These weights are not of a BERT-like model: {name} is missing.") from exc

    depth = sum(1 for name in tensors if name.endswith(".attention.self.query.weight"))
    positions = _wide(get("embeddings.position_embeddings.weight")) + _wide(
        get("embeddings.token_type_embeddings.weight")[:1]
    )
    words = get(marker)
    if not depth or words.ndim != 2 or heads <= 0 or words.shape[1] % heads:
        raise EmbedderError(f"These weights do not make a BERT-like model with {heads} heads.")
    return Bert(
        words=words,  # as stored, mapped: only the rows that are needed are read and widened
        positions=positions,
        norm=(_wide(get("embeddings.LayerNorm.weight")), _wide(get("embeddings.LayerNorm.bias"))),
        layers=tuple(_layer(get, f"encoder.layer.{number}.") for number in range(depth)),
        heads=heads,
        epsilon=epsilon,
    )


def _layer(get: Any, prefix: str) -> Layer:
    import numpy as np

    def matrix(name: str) -> Any:
        # The way it will be read: a third quicker for a short text than the transpose of what is stored.
        return np.ascontiguousarray(get(f"{prefix}{name}.weight").T, dtype=np.float32)

    def bias(name: str) -> Any:
        return _wide(get(f"{prefix}{name}.bias"))

    def norm(name: str) -> tuple[Any, Any]:
        return _wide(get(f"{prefix}{name}.weight")), bias(name)

    three = ("attention.self.query", "attention.self.key", "attention.self.value")
    return Layer(
        qkv=np.concatenate([matrix(name) for name in three], axis=1),
        qkv_bias=np.concatenate([bias(name) for name in three]),
        out=matrix("attention.output.dense"),
        out_bias=bias("attention.output.dense"),
        attention_norm=norm("attention.output.LayerNorm"),
        up=matrix("intermediate.dense"),
        up_bias=bias("intermediate.dense"),
        down=matrix("output.dense"),
        down_bias=bias("output.dense"),
        output_norm=norm("output.LayerNorm"),
    )


def _wide(tensor: Any) -> Any:
    """As float32; what is already is not copied."""
    import numpy as np

    return np.asarray(tensor, dtype=np.float32)
