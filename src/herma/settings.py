"""The sections of the configuration: each field is a key, with its default, its range and what it means.

`config` loads them; the reference page, `herma config` and the environment's variables derive from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from herma.configkey import BY_PURPOSE, BY_SOURCE, option


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Curated memory."""

    memory_enabled: bool = option(True, "Show the agent's notes (MEMORY.md) to the model.", project=True)
    user_profile_enabled: bool = option(True, "Show the user profile (USER.md) to the model.", project=True)
    memory_char_limit: int = option(2200, "Characters that MEMORY.md may hold.", low=1, high=1_000_000, project=True)
    user_char_limit: int = option(1375, "Characters that USER.md may hold.", low=1, high=1_000_000, project=True)
    provider: str = option("", "External memory that takes part in sessions; empty means none.")
    nudge_interval: int = option(
        10,
        "Turns of the user without a memory saved after which the conversation is looked back at; 0: never.",
        low=0,
        high=100_000,
        project=True,
    )
    write_approval: bool = option(False, "Hold memory writes in the inbox until a person approves them.")
    live_updates: bool = option(True, "Tell a running session about changes made to memory elsewhere.", project=True)
    inbox_days: int = option(30, "Days that an undecided write waits in the inbox.", low=1, high=36_500)
    lock_timeout: float = option(10.0, "Seconds to wait for another process that holds a file.", low=0, high=3600)
    tidy: Literal["apply", "propose", "off"] = option(
        "apply",
        "What tidying by itself may do: apply what is certain, propose (a person decides), or off.",
        one_of=("apply", "propose", "off"),
    )
    tidy_days: float = option(
        7.0, "Days after which a file is tidied although it is not full; 0: only when it is.", low=0, high=36_500
    )
    tail_recall: int = option(3, "Entries of the long tail that one turn may recall; 0: none.", low=0, high=20)
    tail_uses: int = option(
        3, "Conversations that must recall an entry before it is proposed for the prompt; 0: never.", low=0, high=1000
    )


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """How long an external memory may take, and when it is left out."""

    timeout: float = option(8.0, "Seconds that a session waits for it to begin and to recall.", low=0.05, high=600)
    tool_timeout: float = option(60.0, "Seconds that one of its tools may take.", low=0.05, high=3600)
    drain: float = option(
        5.0, "Seconds that the end of a session waits for what it has yet to take in.", low=0, high=600
    )
    failures: int = option(5, "Failures in a row after which it is left out for a while.", low=1, high=1000)
    pause: float = option(120.0, "Seconds that it is then left out.", low=0, high=86_400)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where things are kept."""

    url: str = option("", "Database address; empty means SQLite in the home.")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The model that sessions talk to."""

    name: str = option("", "The model of sessions that do not name one: its window, its tokenizer.")
    url: str = option(
        "",
        "Where it is asked: an address, or openai, anthropic, openrouter, ollama, llama.cpp, vllm; empty: nowhere.",
    )
    kind: Literal["", "openai", "anthropic"] = option(
        "", "How it is spoken with: openai or anthropic; empty: by the address.", one_of=("", "openai", "anthropic")
    )
    api_key_env: str = option(
        "", "The variable that holds its key, in the environment or in the home's .env; empty: the place's usual one."
    )
    timeout: float = option(600.0, "Seconds that a call may take in all.", low=1, high=86_400)
    idle_timeout: float = option(120.0, "Seconds of silence in the middle of an answer.", low=1, high=86_400)
    retries: int = option(3, "How often it is asked again after a failure that may pass.", low=0, high=20)
    max_tokens: int = option(0, "Tokens of an answer at most; 0: as many as the model gives.", low=0, high=10_000_000)
    stream: bool = option(True, "Take answers piece by piece, as they come.")


@dataclass(frozen=True, slots=True)
class AuxiliarySettings:
    """The model for background work. What is empty here is as with the main model."""

    name: str = option("", "A smaller model, perhaps; empty: model.name.")
    url: str = option("", "Where it is asked, as in model.url; empty: where the main one is, with its kind and key.")
    kind: Literal["", "openai", "anthropic"] = option(
        "", "With a url of its own: openai or anthropic; empty: by the address.", one_of=("", "openai", "anthropic")
    )
    api_key_env: str = option("", "With a url of its own: the variable that holds its key.")
    timeout: float = option(0.0, "Seconds that a call may take in all; 0: model.timeout.", low=0, high=86_400)


@dataclass(frozen=True, slots=True)
class SpendSettings:
    """What background work may spend on models, per day."""

    daily_usd: float = option(
        0.5, "US dollars per day, where prices are known; 0: no background work.", low=0, high=1_000_000
    )
    daily_tokens: int = option(
        1_000_000, "Tokens per day, sent and received; 0: no background work.", low=0, high=10**15
    )
    by_purpose: str = option("", "Limits of single purposes per day, within those for all.", amounts=BY_PURPOSE)


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """The model that finds by meaning what words do not find."""

    model: str = option(
        "auto", "auto (e5-small where it is installed), none, e5-small, a folder with a model in it, or endpoint."
    )
    threads: int = option(0, "Processors that a local model may use; 0: all, up to 8.", low=0, high=1024)
    url: str = option("", "For endpoint: the base of its address, as in https://host/v1.")
    endpoint_model: str = option("", "For endpoint: the name of its model.")
    api_key_env: str = option(
        "", "For endpoint: the variable that holds the key, as model.api_key_env; empty: no key is sent."
    )
    dimensions: int = option(0, "For endpoint: numbers per vector to ask for; 0: the model's own.", low=0, high=65_536)
    batch: int = option(64, "For endpoint: texts per request.", low=1, high=2048)
    timeout: float = option(
        30.0, "For endpoint: seconds that one request may take, with its repetitions.", low=0.05, high=3600
    )
    query_prefix: str = option("", "For endpoint: what its model wants before a question.")
    passage_prefix: str = option("", "For endpoint: what its model wants before a text.")
    multilingual: bool = option(True, "For endpoint: whether its model understands more than English.")


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """The model's window, and who may take how much of it."""

    window: int = option(0, "Tokens that fit into the model's window; 0 means: by its name.", low=0, high=100_000_000)
    engine: str = option(
        "compressor", "What shortens a conversation: compressor, or a class of yours as in package.module:Class."
    )
    profile: Literal["default", "coding", "chat"] = option(
        "default", "How the window is divided: default, coding or chat.", one_of=("default", "coding", "chat")
    )
    tool_result_tokens: int = option(
        500, "Tokens of one tool result that the model is sent; the transcript keeps all.", low=20, high=1_000_000
    )
    system_share: float = option(0.0, "Per cent for the system prompt; 0: as the profile says.", low=0, high=100)
    memory_share: float = option(0.0, "Per cent for injected memory; 0: as the profile says.", low=0, high=100)
    conversation_share: float = option(0.0, "Per cent for what was said; 0: as the profile says.", low=0, high=100)
    results_share: float = option(0.0, "Per cent for tool results; 0: as the profile says.", low=0, high=100)
    reply_share: float = option(0.0, "Per cent kept free for the reply; 0: as the profile says.", low=0, high=100)


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """What the model's tokens cost, and how its cache charges."""

    input: float = option(0.0, "US dollars per million input tokens; 0 means unknown.", low=0, high=1_000_000)
    output: float = option(0.0, "US dollars per million output tokens; 0 means unknown.", low=0, high=1_000_000)
    by_model: str = option("", "Input and output prices by model, as in: claude-opus=15/75, gpt-4o=2.5/10.")
    cache_read: float = option(0.1, "Price of reading from the cache, times the input price.", low=0, high=100)
    cache_write: float = option(1.25, "Price of writing to the cache, times the input price.", low=0, high=100)
    cache_minutes: int = option(5, "Minutes that the cache keeps what nobody uses: 5, or 60.", low=1, high=1440)


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long transcripts are kept."""

    days: float = option(
        0.0, "Days without activity after which a conversation is deleted; 0: never.", low=0, high=36_500
    )
    by_source: str = option(
        "", "The same for single sources; 0: never. Those that are not named go by retention.days.", amounts=BY_SOURCE
    )
    grace_days: float = option(7.0, "Days in which a deletion can be undone.", low=0, high=36_500)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Search over past sessions."""

    mode: Literal["hybrid", "words", "vectors"] = option(
        "hybrid",
        "hybrid (by words and by meaning), words or vectors; without a model, by words.",
        one_of=("hybrid", "words", "vectors"),
    )
    model_wait: float = option(
        1.0, "Seconds that a search waits for its question to be embedded, and for a reranker.", low=0.01, high=60
    )
    common_cap: int = option(20_000, "How many matches of very common words are ranked.", low=100, high=100_000_000)
    prefetch: bool = option(True, "Look into past conversations before each turn, and tell the model what helps.")
    prefetch_ms: int = option(150, "Milliseconds that this may take; what is late is left out.", low=1, high=10_000)


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """What was done before, conversation by conversation."""

    max: int = option(
        10_000, "Episodes that are kept at hand; the least valuable go to the archive.", low=10, high=10_000_000
    )
    shown: int = option(2, "Episodes that the prompt of a new session shows at most; 0: none.", low=0, high=10)


@dataclass(frozen=True, slots=True)
class CompressionSettings:
    """What happens when the model's window fills."""

    enabled: bool = option(True, "Shorten a conversation by itself when it fills the window.")
    threshold: float = option(0.75, "Part of the window from which on a conversation is shortened.", low=0.1, high=0.98)
    tail: float = option(0.3, "Part of the threshold that stays as it is at the end.", low=0.05, high=0.8)
    protect_first: int = option(2, "Messages that stay as they are at the beginning.", low=0, high=1000)
    in_place: bool = option(False, "Keep the session's id instead of going on in a new session.")
    on_failure: Literal["extract", "abort"] = option(
        "extract", "When no model can summarise: extract (own words of the talk) or abort.", one_of=("extract", "abort")
    )
    deadline: float = option(90.0, "Seconds that a summary by a model may take.", low=1, high=3600)


@dataclass(frozen=True, slots=True)
class SkillSettings:
    """Written procedures that agents follow and improve."""

    write_approval: bool = option(False, "Hold writes of agents to skills in the inbox until a person approves them.")
    external_dirs: str = option("", "Folders with more skills, which are only read, separated by commas.")
    index_tokens: int = option(
        1500, "Tokens that the list of skills in the prompt may take; 0: no list.", low=0, high=100_000
    )
    tools: str = option(
        "",
        "The tools that agents have, separated by commas; empty: unknown, and no skill is held back for want of one.",
    )


@dataclass(frozen=True, slots=True)
class CuratorSettings:
    """How skills are kept in shape."""

    enabled: bool = option(True, "Look after skills by itself, in the background, when that is due.")
    interval_hours: float = option(168.0, "Hours from one run to the next.", low=1, high=100_000)
    min_idle_hours: float = option(
        2.0, "Hours without a word before a run begins by itself; at the end of a session, in others.", low=0, high=1000
    )
    stale_days: float = option(30.0, "Days without use after which a skill is stale.", low=1, high=36_500)
    archive_days: float = option(90.0, "Days without use after which it goes to the archive.", low=1, high=36_500)
    notice_days: float = option(
        7.0, "Days for which reports name a skill as unused, at least, before it goes.", low=0, high=36_500
    )
    most_archived: int = option(10, "Skills that go to the archive in one interval at most.", low=0, high=100_000)
    origins: str = option(
        "agent", "Whose skills may become stale and go: agent, installed, user, found, separated by commas."
    )
    review_uses: int = option(5, "Outcomes that must be known before failures count.", low=1, high=1_000_000)
    review_rate: float = option(0.5, "Part of successes below which a skill needs review.", low=0, high=1)
    keep_snapshots: int = option(5, "Snapshots of all skills that are kept.", low=1, high=1000)
    consolidate: bool = option(
        False, "Let the auxiliary model propose one text for skills that nearly repeat each other; a person decides."
    )


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """The agent in the terminal."""

    max_steps: int = option(
        50, "Steps with tools in one turn at most; then the model has to answer.", low=1, high=10_000
    )
    markdown: bool = option(True, "Show answers as formatted text on a terminal.")
    tool_timeout: float = option(120.0, "Seconds that a tool of an MCP server may take.", low=0.1, high=86_400)
    connect_timeout: float = option(15.0, "Seconds that an MCP server may take to begin.", low=0.1, high=3600)
    result_chars: int = option(
        200_000, "Characters that the result of one tool of an MCP server may have.", low=100, high=10_000_000
    )


@dataclass(frozen=True, slots=True)
class ReviewSettings:
    """Looking back at conversations in the background, to learn from them."""

    enabled: bool = option(True, "Look back at conversations, and keep what the user asks to be remembered.")
    skill_interval: int = option(
        10,
        "Steps with tools without a skill written after which the work is looked back at; 0: never.",
        low=0,
        high=100_000,
    )
    max_steps: int = option(8, "Steps that one look back may take.", low=1, high=100)
    writes: Literal["apply", "stage"] = option(
        "apply", "What becomes of memories found: apply, or stage (they wait for a person).", one_of=("apply", "stage")
    )
    skill_writes: Literal["stage", "apply"] = option(
        "stage", "What becomes of skills found: stage (they wait for a person), or apply.", one_of=("stage", "apply")
    )
    at_end: bool = option(True, "Look back at a session as a whole when it ends.")
    min_turns: int = option(
        3, "Turns of the user that a session, or a piece of one, must have for that.", low=1, high=1000
    )
    idle_minutes: float = option(
        60.0,
        "Minutes of silence after which a piece of an endless chat is taken to have ended; 0: never.",
        low=0,
        high=100_000,
    )
    boundaries: str = option("idle, day, topic", "What divides an endless chat: idle, day, topic; empty: nothing.")
    deadline: float = option(120.0, "Seconds that one look back may take.", low=1, high=3600)
    drain: float = option(
        5.0, "Seconds that closing waits for one; what is not done then is made up for later.", low=0, high=600
    )
    keep_days: float = option(
        90.0,
        "Days for which the log keeps those that wrote nothing; 0: always. Those that wrote can always be undone.",
        low=0,
        high=36_500,
    )
