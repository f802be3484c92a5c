"""Answer `/v1/chat/completions` in `herma serve`: memory goes in, the configured model answers, the turn is kept.

The request goes to the server of `model.url` with every parameter of the caller but the model's name; the answer goes
back as it comes. The caller's key is the token of the home; the model's own key stays here.

Headers of a request: `X-Herma-Session` names the conversation (otherwise it is recognised by its first messages),
`X-Herma-User` and `X-Herma-Project` say whose it is.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import anyio
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from herma.errors import HermaError, ModelError, UsageError, install_command
from herma.models.apis import OpenAICollector
from herma.models.client import refused, unreachable
from herma.proxy.conversations import Conversations, Exchange, Json, begin_chat, joined

if TYPE_CHECKING:
    import httpx2
    from starlette.requests import Request

    from herma.app import Herma
    from herma.models.endpoints import Endpoint

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
SOURCE = "proxy"
LARGEST_BODY = 64 * 1024 * 1024
_CONNECT = 10.0


class ChatProxy:
    """The routes below `/v1`. `opened` gives the home; `in_thread` runs what blocks; `close` ends the conversations."""

    def __init__(self, opened: Callable[[], AbstractContextManager[Herma]], in_thread: InThread) -> None:
        self._opened = opened
        self._in_thread = in_thread
        self._held = ExitStack()
        self._app: Herma | None = None
        self._mutex = threading.Lock()  # guards the three of them
        self._conversations: dict[tuple[str, str], Conversations] = {}
        self.routes = [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
        ]

    def close(self) -> None:
        """End the conversations; each can be gone on with."""
        with self._mutex:
            self._release()

    def _release(self) -> None:
        for one in self._conversations.values():
            one.close()
        self._conversations.clear()
        self._app = None
        self._held.close()

    async def _models(self, request: Request) -> Response:
        del request
        try:
            with self._opened() as app:
                where = _endpoint(app)
        except HermaError as error:
            return _error(error)
        listed = {"id": where.name, "object": "model", "created": 0, "owned_by": where.provider}
        return JSONResponse({"object": "list", "data": [listed]})

    async def _complete(self, request: Request) -> Response:
        held = ExitStack()
        try:
            body = _checked(await _body(request))
            where, exchange, messages = await self._in_thread(lambda: self._begin(held, request, body))
        except HermaError as error:
            held.close()
            return _error(error)
        sent: Json = {**body, "model": where.name, "messages": messages}
        wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        if body.get("stream"):
            sent["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        call = _Call(where, exchange, held, self._in_thread)
        try:
            response = await call.send(sent)
        except HermaError as error:
            return _error(error)
        if body.get("stream"):
            events = call.events(response, usage=wants_usage)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        return await call.whole(response)

    def _begin(self, held: ExitStack, request: Request, body: Json) -> tuple[Endpoint, Exchange, list[Json]]:
        """Add memory to a request. `held` keeps the home open until the answer is kept."""
        app = held.enter_context(self._opened())
        where = _endpoint(app)
        user, project, key = (request.headers.get(f"x-herma-{name}", "") for name in ("user", "project", "session"))
        with self._mutex:
            if app is not self._app:  # the first request, or the configuration has changed
                self._release()
                self._app = self._held.enter_context(self._opened())
            talks = self._conversations.setdefault(
                (user, project), Conversations(self._app, SOURCE, user=user or None, project=project or None)
            )
        return where, *begin_chat(talks, body["messages"], model=where.name, key=key)


class _Call:
    """One request to the model's server, and its answer."""

    def __init__(self, where: Endpoint, exchange: Exchange, held: ExitStack, in_thread: InThread) -> None:
        self._where = where
        self._exchange = exchange
        self._held = held
        self._in_thread = in_thread
        self._events: list[Json] = []
        self._client: httpx2.AsyncClient | None = None

    async def send(self, body: Json) -> httpx2.Response:
        """Send the request. Raise `ModelError` if the server cannot be reached or refuses it."""
        import httpx2

        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(self._where.timeout, connect=_CONNECT),
            trust_env=not self._where.loopback,
            follow_redirects=False,  # a redirect would carry the key elsewhere
        )
        headers = {"Authorization": f"Bearer {self._where.key or 'none'}"}
        request = self._client.build_request("POST", _address(self._where), json=body, headers=headers)
        try:
            response = await self._client.send(request, stream=True)
            if response.status_code == 200:
                return response
            words = await response.aread()
            try:
                said = json.loads(words)
            except ValueError:
                said = words.decode("utf-8", "replace")
            fault = refused(self._where, response.status_code, said, response.headers, 0.0)
        except httpx2.HTTPError as error:
            fault = unreachable(self._where, str(error))
        except BaseException:
            await self._end(failed=True)
            raise
        await self._end(failed=True)
        raise fault.error

    async def whole(self, response: httpx2.Response) -> Response:
        """Return the answer in one piece."""
        import httpx2

        try:
            data = await response.aread()
            self._add(data)
        except httpx2.HTTPError as error:
            await self._end(failed=True)
            return _error(unreachable(self._where, str(error), connecting=False).error)
        await self._end()
        return Response(data, media_type="application/json")

    async def events(self, response: httpx2.Response, *, usage: bool) -> AsyncIterator[bytes]:
        """Yield the events as they come. They are stored before the end is passed on, and also if the caller or the
        server leaves early.
        """
        import httpx2

        end = b""
        try:
            async for line in response.aiter_lines():
                if line.startswith("data:") and line[5:].strip() == "[DONE]":
                    end = f"{line}\n\n".encode()
                    break
                if line.startswith("data:"):
                    event = self._add(line[5:])
                    if not usage and event.get("usage") and not event.get("choices"):
                        continue  # the caller did not ask for it
                    yield f"{line}\n\n".encode()
                elif line:
                    yield f"{line}\n\n".encode()
        except httpx2.HTTPError as error:  # a stream that began can only say so in an event
            fault = unreachable(self._where, str(error), connecting=False)
            yield f"data: {json.dumps(_error_body(fault.error))}\n\n".encode()
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()
        if end:
            yield end

    def _add(self, data: bytes | str) -> Json:
        try:
            event = json.loads(data)
        except ValueError:  # passed on as it is; the caller reads it too
            return {}
        if not isinstance(event, dict):
            return {}
        self._events.append(event)
        return event

    async def _end(self, *, failed: bool = False) -> None:
        try:
            if self._client is not None:
                await self._client.aclose()
            await self._in_thread(self._exchange.failed if failed else self._keep)
        finally:
            self._held.close()

    def _keep(self) -> None:
        self._exchange.answered(*joined(self._events, OpenAICollector))


# ── steps ──


def _endpoint(app: Herma) -> Endpoint:
    if importlib.util.find_spec("httpx2") is None:
        raise UsageError(
            "The proxy needs the package httpx2, which is not installed.", hint=f"Type: {install_command('openai')}"
        )
    where = app.models.endpoint("main")
    if where is None:
        raise UsageError("No model is configured.", hint="herma config set model.url …, and model.name.")
    if where.kind == "anthropic" and not where.official:
        raise UsageError(
            f"The server {where.host} has Anthropic's API; the proxy needs one with OpenAI's.",
            hint="Set model.url to an OpenAI-compatible address.",
        )
    return where


def _address(where: Endpoint) -> str:
    parts = urlsplit(where.url)
    version = "/v1" if where.kind == "anthropic" else ""  # Anthropic offers OpenAI's API there
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}{version}/chat/completions"))


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise UsageError(f"The request is larger than {LARGEST_BODY // 1024**2} MB. Nothing was sent.")
    return body


def _checked(body: bytes) -> Json:
    try:
        read = json.loads(body)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise UsageError("The body must be a JSON object. Nothing was sent.")
    messages = read.get("messages")
    if (
        not isinstance(messages, list)
        or not messages
        or not all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in messages)
    ):
        raise UsageError("messages must be a list of objects with a role, not empty. Nothing was sent.")
    return read


def _error_body(error: HermaError) -> Json:
    message = " ".join(filter(None, (str(error), error.hint)))
    return {"error": {"message": message, "type": type(error).__name__, "code": error.code, "param": None}}


def _error(error: HermaError) -> Response:
    status = getattr(error, "status", 0) or (502 if isinstance(error, ModelError) else 500)
    if isinstance(error, UsageError):
        status = 400
    return JSONResponse(_error_body(error), status if status >= 400 else 502)
