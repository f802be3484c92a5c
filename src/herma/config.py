"""Configuration: defaults, the home's file, a project's file, the environment and flags make one `Settings`.

A later source wins over an earlier one, key by key, and `Settings.sources` remembers which one it was.
A section is one dataclass in `settings` and one line in `Settings`; the table of known keys, validation,
`herma config` and the reference page derive from the fields. A project's file comes with somebody's
repository, so it may set only what is marked `project=True`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from herma import configfile
from herma.configkey import Option, Value
from herma.configservers import NAME as SERVERS
from herma.configservers import McpServer, read_servers
from herma.errors import ConfigError
from herma.settings import (
    AuxiliarySettings,
    ChatSettings,
    CompressionSettings,
    ContextSettings,
    CuratorSettings,
    EmbeddingSettings,
    EpisodeSettings,
    MemorySettings,
    ModelSettings,
    PriceSettings,
    ProviderSettings,
    RetentionSettings,
    ReviewSettings,
    SearchSettings,
    SkillSettings,
    SpendSettings,
    StoreSettings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

HOME_FILE = "config.yaml"
PROJECT_FILE = ".herma.yaml"
DEFAULT_PROFILE = "default"
RESERVED_VARIABLES = frozenset({"HERMA_HOME", "HERMA_PROFILE", "HERMA_SESSION", "HERMA_MODELS", "HERMA_DEBUG"})


@dataclass(frozen=True, slots=True)
class Problem:
    """A key that was ignored: unknown (with the nearest known one), or not allowed where it stands."""

    key: str
    where: str
    nearest: str | None = None
    forbidden: bool = False
    why: str = ""

    @property
    def pressing(self) -> bool:
        """Whether to say it at every command. A home shared with other software is full of foreign keys."""
        return self.forbidden or self.nearest is not None or bool(self.why)

    def __str__(self) -> str:
        if self.forbidden:
            return f"{self.key} in {self.where} is ignored: a project's file may not set it."
        if self.why:
            return f"{self.key} in {self.where} is ignored: {self.why}."
        if self.nearest == self.key:
            return f"{self.key} in {self.where} is ignored: write it as a section with a key in it."
        ask = f"; did you mean {self.nearest}?" if self.nearest else "."
        return f"{self.key} in {self.where} is not a known key{ask}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be configured. A field with a dataclass as its factory is a section."""

    home: Path
    profile: str = DEFAULT_PROFILE
    memory: MemorySettings = field(default_factory=MemorySettings)
    providers: ProviderSettings = field(default_factory=ProviderSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    auxiliary: AuxiliarySettings = field(default_factory=AuxiliarySettings)
    spend: SpendSettings = field(default_factory=SpendSettings)
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    context: ContextSettings = field(default_factory=ContextSettings)
    prices: PriceSettings = field(default_factory=PriceSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    skills: SkillSettings = field(default_factory=SkillSettings)
    curator: CuratorSettings = field(default_factory=CuratorSettings)
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    episodes: EpisodeSettings = field(default_factory=EpisodeSettings)
    review: ReviewSettings = field(default_factory=ReviewSettings)
    chat: ChatSettings = field(default_factory=ChatSettings)
    mcp_servers: tuple[McpServer, ...] = ()
    """Servers whose tools the agent in the terminal may call. Of the home's own file only: they are programs."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    problems: tuple[Problem, ...] = ()


# ── the table of known keys ─────────────────────────────────────────────────────────────────────────────────


@functools.cache
def sections() -> Mapping[str, Any]:
    """Section name → its dataclass."""
    factories = ((item.name, item.default_factory) for item in dataclasses.fields(Settings))
    return {name: made for name, made in factories if isinstance(made, type) and dataclasses.is_dataclass(made)}


@functools.cache
def options() -> Mapping[str, Option]:
    """Dotted key → what is known about it, in the order of the dataclasses."""
    table: dict[str, Option] = {}
    for section, made in sections().items():
        for item in dataclasses.fields(made):
            default: Any = item.default
            key = f"{section}.{item.name}"
            table[key] = Option(key=key, default=default, **item.metadata)
    return MappingProxyType(table)


def known_keys() -> tuple[str, ...]:
    return tuple(options())


def get(settings: Settings, key: str) -> Value:
    """The value of a dotted key; an unknown one is a ConfigError with the nearest known one."""
    _known(key)
    section, _, name = key.partition(".")
    value: Value = getattr(getattr(settings, section), name)
    return value


def _known(key: str) -> Option:
    found = options().get(key)
    if found is None:
        near = _nearest(key)
        hint = f"Did you mean {near}?" if near and near != key else "`herma config show` lists the known keys."
        raise ConfigError(f"{key} is not a known configuration key.", hint=hint)
    return found


def _nearest(key: str) -> str | None:
    """The known key that was probably meant, if one is close enough."""
    from difflib import get_close_matches

    section, _, name = key.rpartition(".")
    if section in sections():
        names = [known.partition(".")[2] for known in options() if known.startswith(f"{section}.")]
        near = get_close_matches(name, names, n=1, cutoff=0.7)
        return f"{section}.{near[0]}" if near else None
    by_name = {known.partition(".")[2]: known for known in options()}
    if "." not in key:
        near = get_close_matches(key, [*sections(), SERVERS], n=1, cutoff=0.75)
        if near:
            return near[0]
        near = get_close_matches(key, [known for known in by_name if "_" in known], n=1, cutoff=0.85)
        return by_name[near[0]] if near else None
    near = get_close_matches(key, options(), n=1, cutoff=0.8)
    return near[0] if near else None


# ── loading ─────────────────────────────────────────────────────────────────────────────────────────────────


def load(
    *,
    home: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    flags: Mapping[str, object] = MappingProxyType({}),
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Settings:
    """Settings as they hold now. Reads two files at most, creates nothing. A flag of `None` was not given."""
    env = os.environ if environ is None else environ
    folder = resolve_home(home, profile, env)
    values: dict[str, Value] = {key: item.default for key, item in options().items()}
    sources = dict.fromkeys(values, "default")
    problems: list[Problem] = []

    def take(found: Mapping[str, Value], source: str | None = None) -> None:
        values.update(found)
        sources.update({key: source or options()[key].variable for key in found})

    home_file, own = folder / HOME_FILE, project_file(cwd, env)
    take(_from_file(home_file, problems), str(home_file))
    if own is not None:
        take(_from_file(own, problems, project=True), str(own))
    take(_from_environment(env, problems))
    take({key: _value(_known(key), raw, "a flag") for key, raw in flags.items() if raw is not None}, "flag")

    made = {
        name: kind(**{item.name: values[f"{name}.{item.name}"] for item in dataclasses.fields(kind)})
        for name, kind in sections().items()
    }
    return Settings(
        home=folder,
        profile=_profile(profile, env) or DEFAULT_PROFILE,
        sources=MappingProxyType(sources),
        mcp_servers=_servers(home_file, problems),
        problems=tuple(problems),
        **made,
    )


def resolve_home(
    home: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """The argument, HERMA_HOME, HERMES_HOME, else ~/.herma; a profile has a home of its own inside that."""
    env = os.environ if environ is None else environ
    for what, given, kinds in (("home", home, (str, os.PathLike)), ("profile", profile, str)):
        if given is not None and not isinstance(given, kinds):
            raise ConfigError(f"The {what} is named by text, not by {type(given).__name__}.", hint="Give a string.")
    text = os.fspath(home) if home is not None else env.get("HERMA_HOME") or env.get("HERMES_HOME") or "~/.herma"
    if not text or "\0" in text:
        raise ConfigError(
            "The home's path is empty." if not text else "The home's path has a zero byte in it.",
            hint="Name a folder with --home or HERMA_HOME, or leave both out for ~/.herma.",
        )
    try:
        folder = _expand(text, env).absolute()
        name = _profile(profile, env)
        if name:
            folder = folder / "profiles" / name
        existing = next((place for place in (folder, *folder.parents) if place.exists()), folder)
        if existing.exists() and not existing.is_dir():
            raise ConfigError(
                f"The home {folder} cannot be a folder: {existing} is a file.", hint="Choose another --home."
            )
    except (OSError, RuntimeError) as exc:
        raise ConfigError(f"The home {text} cannot be used: {exc}.", hint="Choose another --home.") from exc
    return folder


def _expand(text: str, env: Mapping[str, str]) -> Path:
    own = env.get("HOME")
    if own and (text == "~" or text.startswith("~/")):
        return Path(own, text[2:])
    return Path(text).expanduser()


def _profile(profile: str | None, env: Mapping[str, str]) -> str:
    """The profile's name; "" for none. The name becomes a folder, so it must be one."""
    name = profile if profile is not None else env.get("HERMA_PROFILE") or DEFAULT_PROFILE
    if (
        not name
        or name.startswith(".")
        or name != name.strip()
        or len(name) > 64
        or not name.isprintable()
        or any(mark in name for mark in ("/", "\\", ":"))
    ):
        raise ConfigError(
            f"{name!r} cannot be a profile's name.",
            hint="Use letters, digits, - and _; no slashes, and no dot in front.",
        )
    return "" if name == DEFAULT_PROFILE else name


def project_file(cwd: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The nearest `.herma.yaml`, looking up to the repository's root, the user's own folder or the top."""
    env = os.environ if environ is None else environ
    try:
        start = Path(cwd).absolute() if cwd is not None else Path.cwd()
        own = _expand("~", env)
    except (OSError, RuntimeError):  # the working directory was deleted, or nobody's folder is known
        return None
    for folder in (start, *start.parents):
        try:
            if (folder / PROJECT_FILE).is_file():
                return folder / PROJECT_FILE
            if folder == own or (folder / ".git").exists():
                return None
        except OSError:  # a folder that may not be looked into has no project file for us
            return None
    return None


def _from_file(path: Path, problems: list[Problem], *, project: bool = False) -> dict[str, Value]:
    text = configfile.read(path)
    if text is None:
        return {}
    document = configfile.parse(text, path)
    found: dict[str, Value] = {}
    for name, top in document.top.items():
        if name == SERVERS:
            if project:
                problems.append(Problem(name, f"{path}, line {top.line}", forbidden=True))
        elif name not in sections():
            problems.append(Problem(name, f"{path}, line {top.line}", _nearest(name)))
        elif name not in document.sections and top.kind == "str" and f"{name}.name" in options() and not project:
            found[f"{name}.name"] = _value_of(options()[f"{name}.name"], top, f"{path}, line {top.line}")
        elif name not in document.sections and top.kind != "null":
            raise ConfigError(
                f"{path}, line {top.line}: {name} must be a section with keys in it.",
                hint="Take the line out, or put keys below it; `herma config show` says which there are.",
            )
        for inner, item in document.sections.get(name, {}).items() if name in sections() else ():
            key, where = f"{name}.{inner}", f"{path}, line {item.line}"
            known = options().get(key)
            if inner == "<<":
                raise ConfigError(f"{where}: merged sections (<<) are not supported.", hint="Write the keys out.")
            if known is None:
                problems.append(Problem(key, where, _nearest(key)))
            elif project and not known.project:
                problems.append(Problem(key, where, forbidden=True))
            elif item.kind != "null":
                found[key] = _value_of(known, item, where)
    return found


def _servers(path: Path, problems: list[Problem]) -> tuple[McpServer, ...]:
    def complain(key: str, line: int, why: str, nearest: str | None) -> None:
        problems.append(Problem(key, f"{path}, line {line}", nearest, why=why))

    return read_servers(path, complain)


def _value_of(known: Option, item: configfile.Item, where: str) -> Value:
    if item.kind in ("map", "seq", "omap", "set"):
        raise _wrong(known, "a list" if item.kind == "seq" else "a section", where)
    if known.kind is str and item.kind != "str":
        raise _wrong(known, f"{item.text} (put it in quotes)", where)
    return _value(known, item.text, where)


def _from_environment(env: Mapping[str, str], problems: list[Problem]) -> dict[str, Value]:
    by_variable = {item.variable: item for item in options().values()}
    found: dict[str, Value] = {}
    for name, text in sorted(env.items()):
        if not name.startswith("HERMA_") or name in RESERVED_VARIABLES:
            continue
        known = by_variable.get(name)
        if known is None:
            from difflib import get_close_matches

            near = get_close_matches(name, [*by_variable, *sorted(RESERVED_VARIABLES)], n=1, cutoff=0.8)
            problems.append(Problem(name, "the environment", near[0] if near else None))
        elif text or known.kind is str:  # an empty variable is the shell's way to say "not set"
            found[known.key] = _value(known, text, f"the variable {name}")
    return found


def _value(known: Option, raw: object, where: str) -> Value:
    try:
        return known.read(raw)
    except ValueError as exc:
        raise _wrong(known, repr(raw), where) from exc


def _wrong(known: Option, shown: str, where: str) -> ConfigError:
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    at = f" in {where}" if where else ""
    return ConfigError(f"{known.key} cannot be {shown}{at}: it must be {known.expected}.", hint=known.doc)


# ── changing the file ───────────────────────────────────────────────────────────────────────────────────────


def set_value(path: Path, key: str, text: str) -> None:
    """Write one key into a configuration file, after checking it; comments, order and mode stay."""
    known = _known(key)
    value = _value(known, text, "")
    section, _, name = key.partition(".")
    configfile.edit(path, lambda old: configfile.with_value(old, path, section, name, value))


def unset_value(path: Path, key: str) -> bool:
    """Take one key out of a configuration file; → whether it was there."""
    _known(key)
    section, _, name = key.partition(".")
    return path.exists() and configfile.edit(path, lambda old: configfile.without_value(old, path, section, name))
