"""Tokeniser, weights and ONNX graph of the local model."""

from __future__ import annotations

import json
import mmap
import struct
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from herma.errors import EmbedderError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


# ---------- models.embedding.bert
#
# The weights of a BERT-like model, and its arithmetic in numpy alone.
#
# Several texts go through the matrices side by side, one after another in one long row of tokens, and are apart only
# where they must be, in attention: nothing is padded, and a text's vectors do not depend on its company.


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
        layers=tuple(_bert_layer(get, f"encoder.layer.{number}.") for number in range(depth)),
        heads=heads,
        epsilon=epsilon,
    )


def _bert_layer(get: Any, prefix: str) -> Layer:
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


# ---------- models.embedding.onnx_graph
#
# An ONNX file for a BERT-like model, with matrices in 8 bits: a quarter of the size, and more than twice as fast.
#
# Each column of a matrix and each row of the word table has a scale of its own, which keeps the vectors within a few
# thousandths of those of the 32-bit model. The graph takes one text at a time, so that nothing is padded. ONNX files
# are protocol buffers; the few kinds of fields needed here are written by hand rather than by a dependency. Weights may
# lie in a file beside it: onnxruntime maps that into memory instead of reading and copying it, which halves what
# loading takes.

_FLOAT, _INT8, _INT64 = 1, 3, 7  # kinds of tensor
_STEPS = 127  # -127 … 127: symmetric, so that no zero point is needed
_OURS = "com.microsoft"  # the operators that onnxruntime adds to the standard's
_PAGE = 4096  # what lies in a file beside the graph begins on a page, so that it can be mapped
_SMALL = 1024  # bytes of a constant that stays in the graph all the same


# ── protocol buffers ────────────────────────────────────────────────────────────────────────────────────────────


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(place: int, number: int) -> bytes:
    return _varint(place << 3) + _varint(number)


def _bytes(place: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return _varint(place << 3 | 2) + _varint(len(raw)) + raw


def _attribute(name: str, value: float) -> bytes:
    if isinstance(value, float):
        return _bytes(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)
    return _bytes(1, name) + _number(3, value) + _number(20, 2)


def _shaped(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    sizes = [_number(1, size) if isinstance(size, int) else _bytes(2, size) for size in shape]
    tensor = _number(1, kind) + _bytes(2, b"".join(_bytes(1, size) for size in sizes))
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor))


# ── the graph ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Graph:
    """Nodes and constants as they are added."""

    def __init__(self, beside: str = "") -> None:
        self.parts: list[bytes] = []
        self.beside = beside
        self.weights = bytearray()

    def constant(self, name: str, array: Any) -> str:
        import numpy as np

        kind = {"float32": _FLOAT, "int8": _INT8, "int64": _INT64}[str(array.dtype)]
        dims = b"".join(_number(1, size) for size in array.shape)
        raw = np.ascontiguousarray(array).tobytes()
        content = _bytes(9, raw) if not self.beside or len(raw) < _SMALL else self._put_beside(raw)
        self.parts.append(_bytes(5, dims + _number(2, kind) + _bytes(8, name) + content))
        return name

    def _put_beside(self, raw: bytes) -> bytes:
        """Where it is found."""
        self.weights += bytes(-len(self.weights) % _PAGE)
        place = {"location": self.beside, "offset": str(len(self.weights)), "length": str(len(raw))}
        self.weights += raw
        return b"".join(_bytes(13, _bytes(1, key) + _bytes(2, value)) for key, value in place.items()) + _number(14, 1)

    def node(self, kind: str, inputs: Sequence[str], out: str | Sequence[str], domain: str = "", **named: float) -> str:
        outs = [out] if isinstance(out, str) else list(out)
        body = b"".join(_bytes(1, name) for name in inputs) + b"".join(_bytes(2, name) for name in outs)
        body += _bytes(3, outs[0]) + _bytes(4, kind)
        body += b"".join(_bytes(5, _attribute(name, value)) for name, value in named.items())
        self.parts.append(_bytes(1, body + (_bytes(7, domain) if domain else b"")))
        return outs[0]

    def times(self, x: str, matrix: Any, name: str) -> str:
        """x @ matrix, with the matrix in 8 bits by column and x rounded to 8 bits on the way."""
        import numpy as np

        rounded, scale = quantised(matrix, axis=0)
        weight, scales = self.constant(f"{name}.weight", rounded), self.constant(f"{name}.scale", scale)
        zero = self.constant(f"{name}.zero", np.zeros(scale.shape, np.int8))
        return self.node("DynamicQuantizeMatMul", [x, weight, scales, zero], f"{name}.out", _OURS)

    def add_and_norm(self, x: str, y: str, bias: Any, norm: tuple[Any, Any], name: str, epsilon: float) -> str:
        inputs = [x, y, self.constant(f"{name}.gain", norm[0]), self.constant(f"{name}.shift", norm[1])]
        if bias is not None:
            inputs.append(self.constant(f"{name}.bias", bias))
        return self.node("SkipLayerNormalization", inputs, f"{name}.out", _OURS, epsilon=epsilon)


def compose(bert: Bert, beside: str = "") -> tuple[bytes, bytes]:
    """The file: `input_ids` (1, tokens) in, `last_hidden_state` (1, tokens, dimension) out; and the one `beside` it, of
    this name in the same folder, that has the weights. Without a name everything is in the first.
    """
    graph = _Graph(beside)
    x = _embedded(graph, bert)
    for number, layer in enumerate(bert.layers):
        x = _onnx_graph_layer(graph, x, layer, f"layer.{number}", bert)
    graph.node("Identity", [x], "last_hidden_state")
    ends = _bytes(2, "bert")
    ends += _bytes(11, _shaped("input_ids", _INT64, (1, "tokens")))
    ends += _bytes(12, _shaped("last_hidden_state", _FLOAT, (1, "tokens", bert.dimension)))
    standards = (_bytes(1, "") + _number(2, 17), _bytes(1, _OURS) + _number(2, 1))
    head = _number(1, 8) + _bytes(2, "herma") + b"".join(_bytes(8, standard) for standard in standards)
    return head + _bytes(7, b"".join(graph.parts) + ends), bytes(graph.weights)


def _embedded(graph: _Graph, bert: Bert) -> str:
    import numpy as np

    rounded, scale = quantised(bert.words, axis=1)
    graph.constant("words", rounded)
    graph.constant("words.scale", scale[:, None])
    graph.constant("positions", bert.positions[None])
    for name, value in (("zero", 0), ("one", 1), ("two", 2)):
        graph.constant(name, np.array([value], dtype=np.int64))
    graph.node("Gather", ["words", "input_ids"], "words.int")
    graph.node("Cast", ["words.int"], "words.float", to=_FLOAT)
    graph.node("Gather", ["words.scale", "input_ids"], "words.row")
    graph.node("Mul", ["words.float", "words.row"], "words.out")
    graph.node("Shape", ["input_ids"], "shape")
    graph.node("Slice", ["shape", "one", "two"], "tokens")
    graph.node("Slice", ["positions", "zero", "tokens", "one"], "positions.out")
    return graph.add_and_norm("words.out", "positions.out", None, bert.norm, "embedded", bert.epsilon)


def _onnx_graph_layer(graph: _Graph, x: str, layer: Layer, name: str, bert: Bert) -> str:
    qkv = graph.times(x, layer.qkv, f"{name}.qkv")
    three = [f"{name}.{part}" for part in ("query", "key", "value")]
    graph.node("Split", [qkv], three, axis=-1 & (1 << 64) - 1)
    bias = graph.constant(f"{name}.qkv.bias", layer.qkv_bias)
    mixed = graph.node("MultiHeadAttention", [*three, bias], f"{name}.mixed", _OURS, num_heads=bert.heads)
    out = graph.times(mixed, layer.out, f"{name}.attention")
    x = graph.add_and_norm(x, out, layer.out_bias, layer.attention_norm, f"{name}.middle", bert.epsilon)
    wide = graph.times(x, layer.up, f"{name}.up")
    wide = graph.node("BiasGelu", [wide, graph.constant(f"{name}.up.bias", layer.up_bias)], f"{name}.wide", _OURS)
    down = graph.times(wide, layer.down, f"{name}.down")
    return graph.add_and_norm(x, down, layer.down_bias, layer.output_norm, name, bert.epsilon)


def quantised(matrix: Any, axis: int) -> tuple[Any, Any]:
    """A matrix in 8 bits, and the scale of each of its columns (axis 0) or rows (axis 1)."""
    import numpy as np

    wide = np.asarray(matrix, dtype=np.float32)
    scale = np.abs(wide).max(axis=axis) / np.float32(_STEPS)
    scale[scale == 0] = 1
    rounded = np.rint(wide / np.expand_dims(scale, axis)).astype(np.int8)
    return rounded, scale


# ---------- models.embedding.safetensors
#
# Files of tensors in the safetensors format: a JSON header with names, shapes and places, then the bytes.
#
# Reading maps the file into memory: what is not used is not read. Nothing in such a file is executed.

_LARGEST_HEADER = 64 * 1024 * 1024
_KINDS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "|i1", "U8": "|u1", "I64": "<i8", "I32": "<i4"}


def read_tensors(path: Path) -> dict[str, Any]:
    """Name → array, as views of the mapped file; bfloat16 is widened to float32."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        size = int.from_bytes(mapped[:8], "little")
        if not 2 <= size <= min(len(mapped) - 8, _LARGEST_HEADER):
            raise ValueError("its header is cut off")
        header = json.loads(mapped[8 : 8 + size])
        return {name: _view(mapped, 8 + size, item) for name, item in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise EmbedderError(f"{path} is no readable safetensors file: {exc}.") from exc


def _view(mapped: mmap.mmap, start: int, item: Mapping[str, Any]) -> Any:
    import numpy as np

    first, last = item["data_offsets"]
    kind, shape = np.dtype(_KINDS[item["dtype"]]), tuple(item["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    if not 0 <= first <= last <= len(mapped) - start or last - first != count * kind.itemsize:
        raise ValueError("a tensor lies outside the file")
    view = np.frombuffer(mapped, kind, count, start + first).reshape(shape)
    return (view.astype(np.uint32) << 16).view(np.float32) if item["dtype"] == "BF16" else view


def write_tensors(path: Path, tensors: Mapping[str, Any], about: Mapping[str, str]) -> None:
    """Write arrays (float32, float16 or int8) in the order given."""
    names = {"float32": "F32", "float16": "F16", "int8": "I8"}
    header: dict[str, Any] = {"__metadata__": dict(about)}
    place = 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": names[str(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": [place, place + tensor.nbytes],
        }
        place += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)  # the tensors begin where a processor likes to read
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(memoryview(tensor).cast("B"))


# ---------- models.embedding.wordpiece
#
# Texts into the numbers of a BERT vocabulary: the uncased WordPiece that BERT-like models were trained with.
#
# Two steps. `words` folds a text (decompose, drop accents and control characters, lower case) and cuts it at white
# space, around every punctuation mark and around every Chinese character. Each word is then covered from the left by
# the longest entries of the vocabulary, the later ones written `##…`; a word that cannot be covered is `[UNK]`.

LONGEST_WORD = 100  # characters; anything longer is no word of the vocabulary, and would take long to find out
REMEMBERED_WORDS = 50_000
SPECIAL = ("[CLS]", "[SEP]", "[UNK]")
_CHARACTERS_PER_TOKEN = 64  # of a text that is cut anyway, more than this much per wanted token is never looked at
# The blocks that BERT treats as written without spaces. Kana and Hangul are not among them.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


_DROPPED = frozenset({"Cc", "Cf", "Co", "Cs", "Mn"})  # what Unicode has not assigned yet stays, as part of a word


class _Folded(dict[int, str]):
    """What stands for a character in a folded text, worked out when it is first met; for `str.translate`."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold(code)
        return folded


def _fold(code: int) -> str:
    character = chr(code)
    if character.isspace() and code not in range(0x1C, 0x20) and code != 0x85:
        return " "
    category = unicodedata.category(character)
    if category in _DROPPED or code == 0xFFFD:
        return ""
    if any(first <= code <= last for first, last in _IDEOGRAPHS) or category[0] == "P" or _is_ascii_mark(code):
        return f" {character} "
    return character.lower()


def _is_ascii_mark(code: int) -> bool:
    """BERT takes +, $, ~ and the like for punctuation, but only in ASCII."""
    return 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126


_FOLDED = _Folded()


def words(text: str) -> list[str]:
    """The words of a text, folded; punctuation marks and Chinese characters are words of their own."""
    if not text.isascii():
        text = unicodedata.normalize("NFD", text)
    return text.translate(_FOLDED).split()


@dataclass(slots=True)
class WordPiece:
    """A vocabulary, and the words that were looked up in it."""

    vocabulary: Mapping[str, int]
    _longest: int = field(init=False)
    _known: dict[str, tuple[int, ...]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        missing = [name for name in SPECIAL if name not in self.vocabulary]
        if missing:
            raise EmbedderError(f"This is no BERT vocabulary: it has no {', '.join(missing)}.")
        self._longest = max(len(piece) for piece in self.vocabulary)

    def encode(self, text: str, at_most: int) -> list[int]:
        """The numbers of a text between `[CLS]` and `[SEP]`, no more than `at_most` in all; the rest is cut off."""
        room = at_most - 2
        numbers = [self.vocabulary["[CLS]"]]
        known = self._known
        for word in words(text[: room * _CHARACTERS_PER_TOKEN]):
            pieces = known.get(word)
            numbers += self._look_up(word) if pieces is None else pieces
            if len(numbers) > room:
                del numbers[room + 1 :]
                break
        numbers.append(self.vocabulary["[SEP]"])
        return numbers

    def _look_up(self, word: str) -> tuple[int, ...]:
        pieces = self._cover(word)
        if len(self._known) >= REMEMBERED_WORDS:
            self._known.clear()  # simpler than forgetting the least used, and as quick: common words are back at once
        self._known[word] = pieces
        return pieces

    def _cover(self, word: str) -> tuple[int, ...]:
        vocabulary = self.vocabulary
        unknown = (vocabulary["[UNK]"],)
        if len(word) > LONGEST_WORD:
            return unknown
        pieces: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                number = vocabulary.get(prefix + word[start:end])
                if number is not None:
                    pieces.append(number)
                    start, prefix = end, "##"
                    break
            else:
                return unknown
        return tuple(pieces)


def read_vocabulary(path: Path) -> WordPiece:
    """From a `vocab.txt` (one entry per line) or the WordPiece part of a `tokenizer.json`."""
    try:
        text = path.read_text("utf-8")
        entries = _from_json(json.loads(text)) if path.suffix == ".json" else _from_lines(text.split("\n"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as exc:
        raise EmbedderError(f"The vocabulary {path} cannot be read: {exc}.") from exc
    return WordPiece(entries)


def _from_lines(lines: Sequence[str]) -> dict[str, int]:
    return {line.rstrip("\r"): number for number, line in enumerate(lines) if line}


def _from_json(tokenizer: Any) -> dict[str, int]:
    model: Any = tokenizer.get("model") if isinstance(tokenizer, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) and model.get("type") in (None, "WordPiece") else None
    if not isinstance(vocabulary, dict):
        raise EmbedderError(
            "This tokenizer.json is not of the WordPiece kind, the only one that is understood here.",
            hint="Models with other tokenizers can be used through an endpoint: `embedding.model: endpoint`.",
        )
    return vocabulary
