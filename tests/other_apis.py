"""A loopback model with the APIs that `ScriptedModel` does not have: OpenAI's Responses API and Gemini's, for text."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def other_apis(say: Callable[[Any], str] | None = None) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers what `say` makes of a body, else `Answer 1.`, `Answer 2.`, … → its address, and the bodies
    that it was sent."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            text = say(body) if say else f"Answer {len(asked)}."
            if self.path.partition("?")[0].endswith("/responses"):
                events, is_stream = _responses(text), bool(body.get("stream"))
            else:
                events, is_stream = [_gemini(text)], "stream" in self.path
            if is_stream:
                data = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
            else:
                data = json.dumps(events[-1].get("response", events[-1])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _responses(text: str) -> list[dict[str, Any]]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
    usage: dict[str, Any] = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [item], "usage": usage}
    whole |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "completed"}
    created = {**whole, "output": [], "status": "in_progress"}
    return [
        {"type": "response.created", "sequence_number": 1, "response": created},
        {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item},
        {"type": "response.completed", "sequence_number": 3, "response": whole},
    ]


def _gemini(text: str) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", "index": 0}
    counts = {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8}
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "m", "totalTokens": 5}
