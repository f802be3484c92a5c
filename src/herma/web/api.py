"""The table of operations. One function is one address of the API and, where it has a template, one page.

    @view("/sessions", page="/sessions", title="Sessions")
    def sessions(h: Herma, limit: Limit = 20, source: str = "") -> Json: ...

    @action("/sessions/{session}/rename")
    def rename(h: Herma, session: str, title: str) -> Json: ...

The signature is the description: a parameter without a default is required, its annotation is checked, one that stands
in braces is part of the path, and those of an action are fields of the body (JSON, or a form). A function takes the
opened home as `h`, or its `handle` if it works without opening it. It returns the JSON of the API; a page shows the
same values with the template of its name. `openapi` describes the table.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, quote, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from herma import __version__
from herma.cli.encode import Json, json_text
from herma.cli.output import count, one_line, percent, size, visible, when
from herma.errors import ConfigError, HermaError, ModelError, ProviderError, StoreBusy, UsageError
from herma.memory.cli import span
from herma.review.cli import money, purpose_words, share
from herma.transcript.transfer import Redactor

if TYPE_CHECKING:
    from herma.web.app import HomeHandle

V1 = "/api/v1"
LARGEST_BODY = 1_000_000
"""Bytes of a request's body."""
F = TypeVar("F", bound=Callable[..., Json])
T = TypeVar("T")


class Range(NamedTuple):
    """Bounds of a number, or of the length of a text."""

    least: int
    most: int


Limit = Annotated[int, Range(1, 200)]
Offset = Annotated[int, Range(0, 1_000_000_000)]
Number = Annotated[int, Range(1, 2**63 - 1)]
Seconds = Annotated[int, Range(0, 100_000_000_000)]
"""Since 1970."""
LongText = Annotated[str, Range(1, 200_000)]
_WORDS = Range(0, 4_000)
_ABOUT = {
    "after": "Only messages after the one with this id.",
    "archived": "The archived ones instead.",
    "around": "Only this message and its neighbours.",
    "back": "The page to go on to, from a form.",
    "before": "Only until then: 2026-03-05, 7d, yesterday.",
    "category": "The kind of entry: identity, preference, environment, convention or lesson.",
    "fresh": "Look now.",
    "id": "The id: a letter for the kind, and a number.",
    "kind": "Only this kind.",
    "limit": "At most this many.",
    "look": "Look for transcripts on this machine.",
    "mode": "By words and meaning, or by one of them.",
    "most": "Characters of each text; 0: all.",
    "number": "The number.",
    "offset": "Skip this many: `next` of the answer before.",
    "old": "The whole text of the entry as it is now.",
    "outcome": "Only episodes that ended like this.",
    "project": "The notes of this project, or only what belongs to it.",
    "q": "The query; any text is one.",
    "role": "Only what these said: user, assistant, tool.",
    "run": "The id of a run of tidying: `id` of its report.",
    "search": "Only those with this in their title or id.",
    "session": "The id of a session.",
    "since": "Only from then on: 2026-03-05, 7d, yesterday.",
    "sort": "By time instead of by relevance.",
    "source": "Only from there: cli, telegram, …",
    "tags": "Words to find it by, with commas between them.",
    "target": "MEMORY.md (memory) or USER.md (user).",
    "text": "The text.",
    "trust": "Store it although the scanner objects.",
    "user": "The profile of this user.",
}


class OperationParameter(NamedTuple):
    name: str
    kind: type
    default: Any
    required: bool
    bounds: Range | None
    choices: tuple[str, ...]
    place: Literal["path", "query", "body"]

    @property
    def schema(self) -> Json:
        """Return its JSON schema."""
        if self.kind is bool:
            return {"type": "boolean"}
        if self.kind is int:
            bounds = self.bounds or Range(0, 2**63 - 1)
            return {"type": "integer", "minimum": bounds.least, "maximum": bounds.most}
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        bounds = self.bounds or _WORDS
        return {"type": "string", "minLength": max(bounds.least, int(self.required)), "maxLength": bounds.most}

    def read(self, given: Any) -> Any:
        """Return a value from a query, a form or JSON, checked."""
        if self.kind is bool:
            return _flag(self.name, given)
        if self.kind is int:
            bounds = self.bounds or Range(0, 2**63 - 1)
            whole = given if isinstance(given, int) and not isinstance(given, bool) else _whole(given)
            if whole is None or not bounds.least <= whole <= bounds.most:
                raise _invalid(self.name, given, f"a whole number from {bounds.least} to {bounds.most:,}")
            return whole
        if self.choices:
            if given == "" and not self.required:
                return self.default
            if given not in self.choices:
                raise _invalid(self.name, given, f"one of {', '.join(self.choices)}")
            return given
        return self._text(given)

    def _text(self, given: Any) -> str:
        bounds = self.bounds or _WORDS
        if not isinstance(given, str) or any("\ud800" <= char <= "\udfff" or char == "\0" for char in given):
            raise _invalid(self.name, given, "text")
        if not max(bounds.least, int(self.required)) <= len(given.strip()) or len(given) > bounds.most:
            least = max(bounds.least, int(self.required))
            raise _invalid(self.name, given, f"a text of {least} to {bounds.most:,} characters")
        return given


def _invalid(name: str, given: object, allowed: str) -> UsageError:
    shown = ascii(given) if not isinstance(given, str) or not given.isprintable() else repr(given)
    return UsageError(f"{name} must be {allowed}, not {shown[:60]}. Nothing was changed.", code="invalid")


def _whole(given: object) -> int | None:
    found = isinstance(given, str) and re.fullmatch(r"-?[0-9]{1,19}", given)
    return int(str(given)) if found else None


def _flag(name: str, given: object) -> bool:
    words = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "": False}
    found = given if isinstance(given, bool) else words.get(given.lower()) if isinstance(given, str) else None
    if found is None:
        raise _invalid(name, given, "true or false")
    return found


class Operation(NamedTuple):
    """One row of the table."""

    method: Literal["GET", "POST"]
    path: str
    call: Callable[..., Json]
    parameters: tuple[OperationParameter, ...]
    page: str = ""
    title: str = ""
    seen: bool = False
    """True if its page asks the browser since when the reader was away."""
    person: bool = False
    """True if only a person may do it, who is signed in with a browser: the token alone is an agent's too."""

    @property
    def name(self) -> str:
        return self.call.__name__

    @property
    def about(self) -> str:
        return " ".join((inspect.getdoc(self.call) or "").split("\n\n")[0].split())

    def arguments(self, given: Mapping[str, Any], *, strict: bool = True) -> dict[str, Any]:
        """Return the arguments of the call. With `strict`, an unknown name is refused."""
        known = {one.name: one for one in self.parameters}
        if strict and (unknown := [name for name in given if name not in known]):
            allowed = ", ".join(known) or "none"
            text = f"Unknown parameter {unknown[0][:60]!r}. Allowed: {allowed}. Nothing was changed."
            raise UsageError(text, code="invalid")
        for one in self.parameters:
            if one.required and one.name not in given:
                raise UsageError(f"{one.name} is missing. Nothing was changed.", code="invalid")
        return {name: one.read(given[name]) for name, one in known.items() if name in given}

    def run(self, handle: HomeHandle, arguments: Mapping[str, Any]) -> Json:
        """Call it, and take credentials out of what it shows. Runs in a thread of its own."""
        if "handle" in inspect.signature(self.call).parameters:
            return without_secrets(self.call(handle, **arguments))
        with handle.opened() as h:
            return without_secrets(self.call(h, **arguments))


OPERATIONS: list[Operation] = []


def view(path: str, *, page: str = "", title: str = "", seen: bool = False) -> Callable[[F], F]:
    """Declare what can be read at this address of the API, and on this page."""
    return functools.partial(_declare, "GET", path, page=page, title=title, seen=seen)


def action(path: str, *, person: bool = False) -> Callable[[F], F]:
    """Declare a change. Its result has a `message`; `ok` is false where nothing was changed."""
    return functools.partial(_declare, "POST", path, person=person)


def _declare(method: Literal["GET", "POST"], path: str, call: F, **more: Any) -> F:
    kinds = get_type_hints(call, localns={"Herma": object, "HomeHandle": object}, include_extras=True)
    parameters = []
    for name, one in list(inspect.signature(call).parameters.items())[1:]:
        kind, bounds, choices = kinds[name], None, ()
        if get_origin(kind) is Annotated:
            kind, bounds = get_args(kind)
        if get_origin(kind) is Literal:
            kind, choices = str, get_args(kind)
        required = one.default is inspect.Parameter.empty
        place: Any = "path" if f"{{{name}}}" in path else "query" if method == "GET" else "body"
        parameters.append(OperationParameter(name, kind, one.default, required, bounds, choices, place))
    OPERATIONS.append(Operation(method, path, call, tuple(parameters), **more))
    return call


_JSON = "application/json"
_OTHERS = {
    f"{V1}/events": ("text/event-stream", "Send a `change` event whenever something is written to the home."),
    f"{V1}/openapi.json": (_JSON, "Describe the API."),
    "/healthz": (_JSON, "Say whether the home can be read. Needs no token."),
    "/metrics": ("text/plain", "Report figures of the home and of the server for Prometheus."),
}
"""Addresses that are not in the table: their type and what they do."""


def openapi() -> Json:
    """Return the description of the API, from the table."""
    paths: dict[str, Json] = {}
    for one in OPERATIONS:
        described: Json = {
            "operationId": one.name,
            "summary": one.about,
            "parameters": [
                {"name": each.name, "in": each.place, "required": each.required, "schema": each.schema}
                | ({"description": _ABOUT[each.name]} if each.name in _ABOUT else {})
                for each in one.parameters
                if each.place != "body"
            ],
            "responses": {
                "200": {"description": "Done.", "content": _content("Result")},
                **({"304": {"description": "Unchanged since If-None-Match."}} if one.method == "GET" else {}),
                "default": {"description": "Refused, or something is broken.", "content": _content("Error")},
            },
        }
        if one.method == "POST":
            fields = {each.name: each.schema for each in one.parameters if each.place == "body"}
            body = {"type": "object", "properties": fields, "additionalProperties": False}
            body |= {"required": [name for name, each in _body(one) if each.required]} if _body(one) else {}
            described["requestBody"] = {"required": bool(fields), "content": {"application/json": {"schema": body}}}
        paths.setdefault(f"{V1}{one.path}", {})[one.method.lower()] = described
    for path, (kind, about) in _OTHERS.items():
        done = {"description": "Done.", "content": {kind: {"schema": {"type": "string"}} if kind != _JSON else {}}}
        refused = {"description": "Refused, or something is broken.", "content": _content("Error")}
        paths[path] = {"get": {"summary": about, "parameters": [], "responses": {"200": done, "default": refused}}}
    error: Json = {"type": "object", "required": ["code", "message", "hint"]}
    error["properties"] = {name: {"type": "string"} for name in ("code", "message", "hint")}
    failed = {"type": "object", "required": ["ok", "error"], "properties": {"ok": {"const": False}, "error": error}}
    result = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Herma", "version": __version__, "description": "Memory that any agent can carry."},
        "paths": paths,
        "components": {
            "schemas": {"Result": result, "Error": failed},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _content(schema: str) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _body(one: Operation) -> list[tuple[str, OperationParameter]]:
    return [(each.name, each) for each in one.parameters if each.place == "body"]


# ── templates ────────────────────────────────────────────────────────────────────────────────────────────────────

PAGES = (
    ("/", "Home"),
    ("/memory", "Memory"),
    ("/inbox", "Inbox"),
    ("/search", "Search"),
    ("/sessions", "Sessions"),
    ("/episodes", "Episodes"),
    ("/skills", "Skills"),
    ("/cost", "Cost"),
    ("/connections", "Connections"),
    ("/import", "Import"),
    ("/health", "Health"),
)
"""The navigation."""
_MARK = re.compile(r"&gt;&gt;&gt;((?:(?!&gt;&gt;&gt;|&lt;&lt;&lt;).)+)&lt;&lt;&lt;", re.DOTALL)


@functools.cache
def environment() -> Environment:
    """Return the templates, with the filters that they use. Jinja2 escapes every value."""
    made = Environment(
        loader=PackageLoader("herma.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        {one.__name__: one for one in (count, marked, money, one_line, percent, purpose_words, share, size, span)},
        address=address,
        day=day,
        local=local,
        number="{:,}".format,
        passages=passages,
        seconds=seconds,
        short=short,
        time_ago=time_ago,
    )
    made.globals.update(version=__version__, pages=PAGES, levels=("problem", "warning", "note", "ok"))
    return made


def _printed(value: object) -> object:
    """Return what a template prints: nothing for None, and text in which nothing can act or reorder other text."""
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def marked(snippet: str) -> Markup:
    """Return a snippet with its matches marked."""
    return Markup(_MARK.sub(r"<mark>\1</mark>", str(escape(visible(snippet)))))  # noqa: S704  (escaped before)


def seconds(at: str | float | None) -> float | None:
    """Return the seconds of a time, given as JSON has it."""
    return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at


def local(at: str | float | None) -> str:
    """Return a time on this machine's clock, to the minute."""
    return when(seconds(at))


def time_ago(at: str | float | None, now: float | None = None) -> str:
    """Return a time as people say it: `today 14:05`, `yesterday 09:30`, `12 Nov 08:15`, `2025-03-04`."""
    whole, at, now = local(at), seconds(at), time.time() if now is None else now
    if at is None or len(whole) < 16:
        return whole
    for day, ago in (("today", 0), ("yesterday", 1)):
        if whole[:10] == when(now - ago * 86_400)[:10]:
            return f"{day} {whole[11:]}"
    if whole[:4] == when(now)[:4]:
        return f"{int(whole[8:10])} {_MONTHS[int(whole[5:7]) - 1]} {whole[11:]}"
    return whole[:10]


def day(at: str) -> str:
    """Return a date as people write it: `12 Nov`."""
    whole = local(at)
    return f"{int(whole[8:10])} {_MONTHS[int(whole[5:7]) - 1]}"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def passages(text: str) -> list[tuple[bool, str]]:
    """Return the passages of a Markdown text, each with whether it is a block of code."""
    found: list[tuple[bool, list[str]]] = [(False, [])]
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            found.append((not found[-1][0], []))
        else:
            found[-1][1].append(line)
    made = [(is_code, "\n".join(lines).strip("\n")) for is_code, lines in found]
    return [one for one in made if one[1]]


def short(number: float) -> str:
    """Return a number for people: 950, 12.3k, 4.1M."""
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= least:
            return f"{number / (1e3 if unit == 'k' else least):.1f}{unit}".replace(".0", "")
    return f"{number:,.0f}"


def address(path: str, **query: object) -> str:
    """Return a link: `"/sessions"|address(source="cli")`. Empty values are left out."""
    given = {name: value for name, value in query.items() if value not in (None, "", False)}
    return quote(path, safe="/") + (f"?{urlencode(given)}" if given else "")


def render(template: str, **values: object) -> str:
    """Return a page. With `here`, its path, the reader is signed in."""
    given = {"here": "", "api": "", "to": "", "said": None, "inbox": 0, "path": "", "back": "/", **values}
    return environment().get_template(template).render(**given)


# ── responses ────────────────────────────────────────────────────────────────────────────────────────────────────


def log() -> logging.Logger:
    return logging.getLogger("herma.web")  # not while importing, which has no effect


def is_api(path: str) -> bool:
    return path.startswith(("/api/", "/v1/", "/mcp", "/metrics", "/healthz"))


def as_json(value: Json, status: int = 200, known: str = "") -> Response:
    """Return JSON with an entity tag; without a body where the caller knows it."""
    body = (json_text(value) + "\n").encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if status == 200 and tag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, status, {"ETag": tag} if status == 200 else None, "application/json")


def error_json(sentence: str, hint: str, code: str, **more: object) -> Json:
    return {"ok": False, "error": {"code": code, "message": sentence, "hint": hint}, **more}


def error_at(path: str, sentence: str, hint: str, code: str) -> Json:
    """Return an error in the form of the interface at this path: OpenAI's below `/v1/`, else our own."""
    if not path.startswith("/v1/"):
        return error_json(sentence, hint, code)
    return {
        "error": {"message": f"{sentence} {hint}".strip(), "type": "invalid_request_error", "code": code, "param": None}
    }


def message(title: str, sentence: str, hint: str = "", *, status: int = 200, **more: object) -> Response:
    """Return a page with one sentence."""
    values = {"sign_in": False, "problems": (), "kept": "", **more}
    return HTMLResponse(render("message.html", title=title, sentence=sentence, hint=hint, **values), status)


def wrong(
    path: str, status: int, sentence: str, hint: str = "", *, code: str = "not_found", **more: object
) -> Response:
    """Return an error to a signed-in reader."""
    if is_api(path):
        return as_json(error_at(path, sentence, hint, code), status)
    title = "Not found" if status == 404 else "Something is wrong"
    return message(title, sentence, hint, status=status, here="/" if status == 404 else path, **more)


def status_of(error: HermaError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, StoreBusy | ConfigError):
        return 503
    if isinstance(error, UsageError):
        return 404 if error.code in ("not_found", "deleted") else 400
    if isinstance(error, ModelError | ProviderError):
        return 502
    return 409 if error.exit_code == 1 else 500


def failed(handle: HomeHandle, error: HermaError, path: str, kept: str = "") -> Response:
    """Return an error of the home; on a page, with the doctor's diagnosis. `kept` is the text that was typed."""
    status = status_of(error)
    problems: list[object] = []
    if status in (500, 503) and not isinstance(error, StoreBusy) and not is_api(path):
        try:
            problems = [one for one in handle.doctor(at_most=5.0).checks if one.state != "ok"]
        except HermaError:
            problems = []  # the error itself is on the page
    response = wrong(path, status, str(error), error.hint, code=error.code, problems=problems, kept=kept)
    if isinstance(error, StoreBusy):
        response.headers["Retry-After"] = "2"
    return response


async def body_of(request: Request) -> tuple[dict[str, Any], bool]:
    """Return the fields of a body, and whether it is a form. `UsageError` says what is wrong with it."""
    data = b""
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > LARGEST_BODY:
                text = f"The body has more than {LARGEST_BODY:,} bytes. Nothing was changed."
                raise UsageError(text, code="too_large")
    except ClientDisconnect:
        raise UsageError("The request was cut off. Nothing was changed.", code="invalid") from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        try:
            return dict(parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100)), True
        except ValueError:
            raise UsageError("The form has too many fields. Nothing was changed.", code="invalid") from None
    if kind not in ("application/json", ""):
        raise UsageError("The body must be application/json. Nothing was changed.", code="unsupported_media_type")
    try:
        value = json.loads(data) if data.strip() else {}
    except (ValueError, RecursionError):
        raise UsageError("The body is not valid JSON. Nothing was changed.", code="invalid") from None
    if not isinstance(value, dict):
        raise UsageError("The body must be a JSON object. Nothing was changed.", code="invalid")
    return value, False


# ── what a page tells the next one ───────────────────────────────────────────────────────────────────────────────


def gone_on(back: str, said: Json, cookie: str) -> Response:
    """Return the way from a form to the page behind it, which shows the message."""
    response = RedirectResponse(back if own_path(back) else "/", 303)
    kept = {"message": one_line(str(said.get("message", "Done.")), 200), "undo": str(said.get("undo", ""))}
    response.set_cookie(f"{cookie}-said", quote(json.dumps(kept)), max_age=30, httponly=True, samesite="strict")
    return response


def said_before(request: Request, cookie: str) -> Json | None:
    """Return the message that a form left for this page."""
    try:
        kept = json.loads(unquote(request.cookies.get(f"{cookie}-said", "")))
    except ValueError:
        return None
    if not isinstance(kept, dict):
        return None
    return {name: str(kept.get(name, "")) for name in ("message", "undo")}


def own_path(path: str) -> bool:
    """Return whether this is the path of one of our pages, and cannot lead elsewhere."""
    return bool(re.fullmatch(r"/(?![/\\])[\w./~%?&=+:@,;!*'()-]*(#[\w-]*)?", path, re.ASCII))


def since_seen(request: Request, cookie: str, now: float) -> tuple[float | None, str]:
    """Return when the reader was here before this visit, and the cookie that says so. A pause of half an hour ends a
    visit."""
    found = re.fullmatch(r"(\d{1,12})-(\d{1,12})", request.cookies.get(f"{cookie}-seen", ""))
    before, last = (float(found[1]), float(found[2])) if found else (0.0, 0.0)
    if now - last > 1_800:
        before = last
    return before or None, f"{before:.0f}-{now:.0f}"


class _Shown(Redactor):
    """Take out what may be a half of a credential, too: a long word at which a text was cut."""

    def text(self, text: str, name: str = "") -> str:
        cut = super().text(text, name)
        words = cut.split(" ") if len(cut) < _CUT and "…" in (cut[:1], cut[-1:]) else ()
        return " ".join("…" if _HALF.fullmatch(one) else one for one in words) if words else cut


_CUT = 2_000
_HALF = re.compile(r"(?=[^…]{0,99}\d)(?=[^…]{0,99}[A-Za-z])(?:…[\w+/=-]{10,99}|[\w+/=-]{10,99}…)")


def without_secrets(value: T) -> T:
    """Return a JSON value, or a text, with the credentials taken out."""
    found: T = _Shown().value(value)
    return found


def rows_of(values: Iterable[Any], limit: int) -> tuple[list[Any], bool]:
    """Return a page of values of which one too many was read, and whether there are more."""
    found = list(values)
    return found[:limit], len(found) > limit


def later(more: bool, offset: int, limit: int) -> int | None:
    """Return the `offset` of the next page."""
    return offset + limit if more else None
