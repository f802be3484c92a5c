"""Scrubbing a streamed reply in 20-character pieces, next to a loop that only hands the pieces on.

python benchmarks/scrubber.py            → JSON
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from herma.prompt.fence import StreamScrubber, fence, sanitize

SIZE = 20
PROSE = "The job failed because the lock was held by another process; I moved it and ran the tests again. "
CODE = 'if total < limit and rows & mask:\n    print(f"<b>{total}</b> of {limit} ({share}%)")\n    x = List<String>()\n'
HAN = "任务失败是因为另一个进程持有锁；我移动了它并再次运行了测试。"
TEXTS = {
    "prose": PROSE * 20_000,
    "code": CODE * 10_000,
    "chinese": HAN * 30_000,
    "prose_with_fences": (PROSE * 10 + fence(PROSE * 2)) * 1_000,
}


class PassThrough:
    """The lower bound: one call per piece, nothing else."""

    def feed(self, chunk: str) -> str:
        return chunk

    def flush(self) -> str:
        return ""


def best_of(rounds: int, run: Callable[[], object]) -> float:
    """The least processor time of several rounds: other work on the machine does not count."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def stream(scrubber: StreamScrubber | PassThrough, pieces: list[str]) -> int:
    feed = scrubber.feed
    shown = 0
    for piece in pieces:
        shown += len(feed(piece))
    return shown + len(scrubber.flush())


def main() -> None:
    results: dict[str, dict[str, float]] = {}
    for name, text in TEXTS.items():
        pieces = [text[at : at + SIZE] for at in range(0, len(text), SIZE)]
        megabytes = len(text.encode()) / 1e6
        assert stream(StreamScrubber(), pieces) == len(sanitize(text))
        bare = best_of(5, lambda pieces=pieces: stream(PassThrough(), pieces))  # type: ignore[misc]
        ours = best_of(5, lambda pieces=pieces: stream(StreamScrubber(), pieces))  # type: ignore[misc]
        whole = best_of(5, lambda text=text: sanitize(text))  # type: ignore[misc]
        results[name] = {
            "scrubber_mb_s": round(megabytes / ours, 1),
            "pass_through_mb_s": round(megabytes / bare, 1),
            "times_slower": round(ours / bare, 2),
            "sanitize_mb_s": round(megabytes / whole, 1),
        }
    print(json.dumps({"chunk_characters": SIZE, "texts": results}, indent=2))


if __name__ == "__main__":
    main()
