"""Files of tensors in the safetensors format: a JSON header with names, shapes and places, then the bytes.

Reading maps the file into memory: what is not used is not read. Nothing in such a file is executed.
"""

from __future__ import annotations

import json
import mmap
from typing import TYPE_CHECKING, Any

from herma.errors import EmbedderError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
