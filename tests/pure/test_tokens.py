"""The estimate: never far below the exact count, never absurdly above it, linear; what messages weigh; the window."""

# ruff: noqa: E501 (the samples are in scripts of double width)

from __future__ import annotations

import math
import random
import sys
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import ConfigError
from herma.prompt import tokens as exact
from herma.prompt.tokens import (
    FAMILIES,
    LABELS,
    PER_CALL,
    PER_FILE,
    PER_IMAGE,
    PER_MESSAGE,
    PROFILES,
    SLOTS,
    UNKNOWN_WINDOW,
    Estimate,
    Overflow,
    Slot,
    TokenCounter,
    WorkingMemory,
    count_call,
    count_content,
    count_message,
    count_messages,
    count_tools,
    counter_for,
    counter_for_family,
    draw,
    estimate,
    family_of,
    shares_of,
    window_of,
)

SAMPLES = {
    "english": "The deploy failed because the lock was still held by the old worker, so I restarted it and ran the "
    "migration again. Everything is green now; please check the dashboard before you merge the branch tomorrow. ",
    "python": "def load(path: Path, *, strict: bool = True) -> list[Row]:\n    rows = []\n    for line in path.open():\n"
    "        if not line.strip():\n            continue\n        rows.append(parse_row(line, strict=strict))\n",
    "json": '{"id": 4821, "name": "worker-7", "ok": true, "tags": ["a", "b"], "score": 0.8312, "path": "/srv/app/x.py"}',
    "log": "2026-03-04T11:22:33.456Z ERROR [pool-3] request GET /api/v1/users/8123 took 5301 ms status=503 retry=2\n",
    "chinese": "昨天部署失败了，因为旧的进程还占着锁，所以我重新启动了它，并再次运行了数据库迁移。现在一切正常，请在合并之前检查一下。",
    "traditional": "昨天部署失敗了，因為舊的程序還占著鎖，所以我重新啟動了它，並再次執行了資料庫遷移。現在一切正常，請先檢查。",
    "japanese": "昨日のデプロイは古いプロセスがロックを保持していたため失敗しました。再起動してからもう一度移行を実行しました。",
    "korean": "어제 배포는 이전 프로세스가 잠금을 계속 가지고 있어서 실패했습니다. 다시 시작한 뒤에 마이그레이션을 실행했습니다. ",
    "russian": "Вчера развёртывание не удалось, потому что старый процесс всё ещё держал блокировку; я перезапустил его. ",
    "arabic": "فشل النشر أمس لأن العملية القديمة كانت لا تزال تحتفظ بالقفل، لذلك أعدت تشغيلها ونفذت الترحيل مرة أخرى. ",
    "hindi": "कल की तैनाती विफल रही क्योंकि पुरानी प्रक्रिया ने ताला पकड़ रखा था, इसलिए मैंने उसे फिर से शुरू किया। ",
    "german": "Die Bereitstellung schlug gestern fehl, weil der alte Prozess die Sperre noch hielt; jetzt läuft alles. ",
    "emoji": "Shipped 🚀✨ tests pass ✅ deploy failed ❌ again 😀 great work 👍🙏 team 🎉🔥 check it 💡📌 ",
    "base64": "aGVsbG8gd29ybGQ+dGhpcyBpcyBub3QgdGV4dAqZ8Jx2kLp0QwErTyUiOpAsDfGhJkLzXcVbNm1234567890QWERTYuiop/",
    "hex": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 3fdba35f04dc8c462986c992bcf87554 ",
}


@pytest.mark.parametrize("family", ["o200k", "cl100k", "qwen", "deepseek", "llama3", "kimi", "glm"])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_estimate_errs_on_the_high_side(name: str, family: str) -> None:
    pytest.importorskip("splintr")
    counter = counter_for_family(family)
    assert counter.exact
    text = SAMPLES[name] * (1 + 200 // len(SAMPLES[name]))
    low = 0.97 if family == "o200k" else 0.9  # the other families have exact counters of their own
    assert low * counter.count(text) <= estimate(text, family) <= 1.75 * counter.count(text)


def test_nothing_costs_nothing_something_costs_something_and_an_unknown_family_most() -> None:
    assert estimate("") == 0
    assert all(estimate(char) >= 1 for char in "a 1,\n\x00é你😀\u0301ა߷")
    assert all(estimate(unit * 300_000) > 0 for unit in ("a", " ", "\n", "-", "1", "你", "é", "ab ", "A", "'", "\t \n"))
    text = SAMPLES["english"]
    dearest = max(estimate(text, name) for name in FAMILIES)
    assert estimate(text, "never heard of") == estimate(text, "unknown") >= dearest


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_text_costs_about_what_its_halves_cost(left: str, right: str) -> None:
    whole, parts = estimate(left + right), estimate(left) + estimate(right)
    assert whole <= parts * 1.5 + 12
    assert 0 <= whole <= 4 * len((left + right).encode("utf-8", "surrogatepass")) + 8


@given(st.text(min_size=1, max_size=60))
def test_it_is_linear_in_repetition(text: str) -> None:
    assert estimate(text * 40) <= 40 * (estimate(text) * 1.5 + 3)


@pytest.mark.parametrize(
    ("model", "family", "window"),
    [
        ("gpt-4o-mini", "o200k", 128_000),
        ("openai/gpt-5", "o200k", 400_000),
        ("o3-mini", "o200k", 200_000),
        ("gpt-4.1", "o200k", 1_047_576),
        ("gpt-4", "cl100k", 8_192),
        ("gpt-4-turbo-preview", "cl100k", 128_000),
        ("gpt-3.5-turbo", "cl100k", 16_385),
        ("us.anthropic.claude-sonnet-4-v1:0", "claude", 200_000),
        ("gemini-2.5-pro", "gemini", 1_048_576),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3", 131_072),
        ("llama3.2:3b", "llama3", 131_072),
        ("qwen3:8b", "qwen", 40_960),
        ("deepseek-chat", "deepseek", 131_072),
        ("kimi-k2", "kimi", 131_072),
        ("glm-4.5", "glm", 131_072),
        ("mistral-large-latest", "mistral", 131_072),
    ],
)
def test_models_are_known_by_their_names(model: str, family: str, window: int) -> None:
    assert family_of(model) == family
    assert window_of(model).tokens == window
    assert window_of(model).known


def test_an_unknown_window_says_so() -> None:
    guess = window_of("my-own-7b")
    assert (guess.tokens, guess.known) == (UNKNOWN_WINDOW, False)
    assert "my-own-7b" in guess.note
    assert "32,768" in guess.note
    assert "no model is set" in window_of(None).note
    assert window_of("my-own-7b", 9_000).tokens == 9_000


def test_counters() -> None:
    counters: list[TokenCounter] = [counter_for("claude-opus-4"), counter_for(None), Estimate()]
    for counter in counters:
        assert not counter.exact
        assert counter.count("") == 0
        assert counter.name.startswith("estimate for ")
    assert counter_for("gemini-2.5-pro").name == "estimate for gemini"


def test_exact_counters_take_any_string() -> None:
    pytest.importorskip("splintr")
    counter = counter_for("gpt-4o")
    assert counter.exact
    assert counter.count("") == 0
    assert counter.count("half \ud800 a pair") > 0
    assert counter.count("<|endoftext|>") > 1


def test_without_the_optional_packages_the_estimate_steps_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "splintr", None)
    counter_for_family.cache_clear()
    try:
        assert counter_for("gpt-4o") == Estimate("o200k")
    finally:
        counter_for_family.cache_clear()


def test_what_messages_weigh() -> None:
    def words(text: str) -> int:
        return len(text.split())

    plain = {"role": "user", "content": "one two three"}
    assert count_message(plain, words) == PER_MESSAGE + 3
    assert count_messages([plain, plain], words) == 2 * (PER_MESSAGE + 3)
    parts: dict[str, Any] = {
        "role": "user",
        "content": [
            {"type": "text", "text": "look here"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}},
            {"type": "input_audio", "input_audio": {"data": "A" * 100_000}},
            {"type": "tool_result", "content": [{"type": "text", "text": "fine"}]},
            {"type": "tool_use", "name": "x", "input": {}},
            "bare",
        ],
    }
    assert count_message(parts, words) == PER_MESSAGE + 2 + PER_IMAGE + PER_FILE + PER_CALL + 1 + PER_CALL + 1 + 1
    call = {"id": "c1", "function": {"name": "grep", "arguments": '{"q": "a b"}'}}
    assert count_call(call, words) == 1 + 3 + 1
    assert (
        count_message({"role": "assistant", "content": None, "tool_calls": [call]}, words) == PER_MESSAGE + PER_CALL + 5
    )
    assert count_message({"role": "assistant", "content": "x", "reasoning": "because of y"}, words) == PER_MESSAGE + 4
    assert count_tools([{"type": "function"}], words) == PER_CALL + 1
    assert count_content([7], words) == 1


@pytest.mark.parametrize(
    "text",
    [
        b64encode(random.Random(1).randbytes(900_000)).decode(),
        "The quick brown fox, again.\n" * 45_000,
        "天气很好" * 300_000,
    ],
    ids=["base64", "prose", "chinese"],
)
def test_a_text_of_millions_of_characters_is_estimated_from_a_part_of_it(text: str) -> None:
    before = exact._piece.cache_info()
    counted = estimate(text)
    after = exact._piece.cache_info()
    looked_at = after.hits + after.misses - before.hits - before.misses
    assert looked_at <= 512_000, "pieces of text that were looked at"
    whole = sum(estimate(text[start : start + 100_000]) for start in range(0, len(text), 100_000))
    assert counted == pytest.approx(whole, rel=0.02)


# ── how the window is divided ──


def test_rooms_by_profile() -> None:
    default = WorkingMemory(100_000).plan()
    assert [use.room for use in default.uses] == [8_000, 12_000, 30_000, 35_000, 15_000]
    assert (default.used, default.free, default.overflows) == (0, 100_000, ())
    assert {sum(shares_of(profile).values()) for profile in PROFILES} == {100}
    changed = shares_of("coding", {"tools": 40, "reply": 20})
    assert (changed["tools"], changed["system"]) == (40, PROFILES["coding"]["system"])
    assert WorkingMemory(10_000, changed).room("reply") == 2_000


@pytest.mark.parametrize(
    ("profile", "changes", "says"),
    [
        ("default", {"tools": 50}, "add up to 115 percent"),
        ("default", {"tools": -1}, "tool results must be between 0 and 100"),
        ("default", {"tools": 101}, "between 0 and 100"),
        ("default", {"tools": math.nan}, "between 0 and 100"),
        ("default", {"toolz": 5}, "'toolz' is not a slot"),
        ("gaming", {}, "'gaming' is not a budget profile"),
    ],
)
def test_wrong_shares_are_refused_with_a_reason(profile: str, changes: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        shares_of(profile, changes)
    with pytest.raises(ConfigError, match="must be greater than 0"):
        WorkingMemory(0).plan()


def test_overflow_says_where_it_went() -> None:
    divided = WorkingMemory(1_000).plan({"tools": 500, "system": 10}, where={"tools": "kept as message 12"})
    assert divided.overflows == (Overflow("tools", 150, "kept as message 12"),)
    assert (divided["tools"].free, divided["system"].free) == (0, 70)
    assert WorkingMemory(1_000).plan({"memory": 900}).overflows[0].where.startswith("left in memory")


@given(
    st.integers(1, 2_000_000),
    st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 3_000_000)),
    st.integers(0, 200),
)
def test_the_numbers_add_up(window: int, usage: dict[Slot, int], width: int) -> None:
    divided = WorkingMemory(window, note="guessed").plan(usage)
    assert sum(use.room for use in divided.uses) <= window
    assert sum(use.used for use in divided.uses) == sum(usage.values()) == divided.used
    assert {gone.slot: gone.tokens for gone in divided.overflows} == {
        use.slot: use.over for use in divided.uses if use.over
    }
    drawn = draw(divided, width).splitlines()
    assert len(drawn[0]) == max(12, width)
    for use in divided.uses:
        assert any(LABELS[use.slot] in line and f"{use.used:,}" in line for line in drawn)
        assert (use.slot[0].upper() in drawn[0]) == (use.used > 0)
    assert drawn[-1].strip() == "guessed"
