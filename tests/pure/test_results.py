"""Shortened results fit, keep their shape and their errors, and say where the rest is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herma.prompt.tokens import estimate
from herma.prompt.tool_results import LIMIT, Kind, compress_result, digest, kind_of

LOG = "\n".join(
    f"2026-03-0{1 + at % 9} 10:{at % 60:02}:00 INFO worker {at % 7} handled request {at} in {at * 13 % 97} ms"
    for at in range(400)
)
CODE = "\n".join(f"def function_{at}(value: int) -> int:\n    return value * {at}\n" for at in range(120))
CSV = "name,latency,share\n" + "\n".join(f"host-{at},{(at * 37) % 1009},{at / 7:.2f}%" for at in range(300))

SAMPLES: dict[Kind, list[str]] = {
    "json": ['{"a": 1}', '  {"a": [1, {"b": null}]}\n', '{"id": 1}\n{"id": 2}\n{"id": 3}\n'],
    "table": [
        "a,b,c\n1,2,3\n4,5,6\n7,8,9",
        "id;name\n1;x\n2;y\n",
        'name,quote\nann,"hello, you"\nbob,"bye, you"\n',
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
        "+----+----+\n| a  | b  |\n+----+----+\n| 1  | 2  |\n| 3  | 4  |\n+----+----+",
        " id | name\n----+------\n  1 | x\n  2 | y\n",
        "NAME     READY   STATUS    RESTARTS\nweb-1    1/1     Running   0\nweb-2    0/1     Crash     7\n",
    ],
    "log": [
        LOG,
        "[INFO] starting\n[INFO] listening on 8080\n[ERROR] bind: address in use",
        "10.0.0.1 - - [04/Mar] GET / 200\n10.0.0.2 - - [04/Mar] GET /x 404",
        "tests/a.py::test_one PASSED\ntests/a.py::test_two FAILED\n",
        "npm WARN deprecated a@1\nnpm WARN deprecated b@2\nnpm ERR! code 1\n",
    ],
    "code": [
        CODE,
        "#include <stdio.h>\nint main(void) {\n    return 0;\n}\n",
        "diff --git a/x b/x\nindex 1234567..89abcde\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n",
        "1\timport os\n2\tdef f():\n3\t    return os.name\n",
    ],
    "text": [
        "{not json at all",
        "[see the notes] and go on",
        "First a walk, then lunch.\nAfter that, we read.\nIn the evening, we cooked, ate and slept.\n",
        "\n\n",
    ],
}
EVERY = [(kind, text) for kind, texts in SAMPLES.items() for text in texts]


@pytest.mark.parametrize(("kind", "text"), EVERY)
def test_kinds(kind: Kind, text: str) -> None:
    assert kind_of(text) == kind


def test_short_results_come_back_unchanged_but_for_colours_and_progress_bars() -> None:
    for text in (*(text for _, text in EVERY), "\n".join(f"x{at} = {at}" for at in range(50))):
        if estimate(text) <= LIMIT and len(text.splitlines()) <= 50:
            assert compress_result(text) == text
    result = compress_result("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\n 10%\r 50%\r100%\r\nend\r\n")
    assert result == "red link\n100%\r\nend\r\n"


def test_identical_results_become_references() -> None:
    again = compress_result(LOG, reference="9", seen={digest(LOG): "7"})
    assert 'tool_call_id "7"' in again
    assert "session_search" in again
    assert estimate(again) < 40 < estimate(compress_result(LOG, reference="7"))
    assert compress_result("ok", seen={digest("ok"): "7"}) == "ok"


def test_logs_keep_head_tail_and_errors() -> None:
    lines = LOG.splitlines()
    lines[200] = "2026-03-01 10:00:00 ERROR disk full on /var"
    lines[300:300] = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "    g()",
        "ValueError: nope",
    ]
    lines[320] = "2026-03-01 10:00:00 INFO finished with 0 errors"
    result = compress_result("\n".join(lines), limit_tokens=4_000, reference="88")
    shown = result.splitlines()
    assert shown[:25] == lines[:25]
    assert shown[-11:-1] == lines[-10:]
    assert "201: 2026-03-01 10:00:00 ERROR disk full on /var" in shown
    assert "200: " + lines[199] in shown
    assert "304: ValueError: nope" in shown
    assert '302:   File "x.py", line 1, in f' in shown
    assert not any("0 errors" in line for line in shown)
    assert any("lines left out" in line for line in shown)
    assert shown[-1].startswith("[Shortened from about ")
    assert 'session_search with tool_call_id "88"' in shown[-1]


def test_errors_survive_a_tight_limit_and_long_code_is_shortened_even_if_it_fits() -> None:
    lines = LOG.splitlines()
    lines[222] = "2026-03-01 10:00:00 CRITICAL the one thing that matters"
    for limit in (500, 300, 200):
        assert "the one thing that matters" in compress_result("\n".join(lines), limit_tokens=limit)
    text = "\n".join(f"x{at} = {at}" for at in range(60))
    result = compress_result(text, limit_tokens=100_000)
    assert result.splitlines()[:25] == text.splitlines()[:25]
    assert ("x59 = 59" in result, "x40 = 40" in result) == (True, False)


def test_tables_keep_their_shape() -> None:
    text = compress_result(CSV, reference="5")
    assert "[csv table: 300 rows × 3 columns]" in text
    assert "columns: name, latency, share" in text
    latencies = [(at * 37) % 1009 for at in range(300)]
    assert f"latency: {min(latencies)} (row 1) … {max(latencies)} (row {latencies.index(max(latencies)) + 1})" in text
    assert "1: host-0 | 0 | 0.00%" in text
    assert "300: host-299" in text
    assert "rows left out" in text


def test_json_keeps_its_structure_and_its_errors() -> None:
    value = {
        "total": 900,
        "items": [{"id": at, "name": f"item {at}", "status": "ok", "blob": "x" * 500} for at in range(300)],
        "nested": {"deep": {"deeper": {"list": list(range(1_000))}}},
        "error": "the database is locked " * 5,
    }
    value["items"][150]["status"] = "failed"  # type: ignore[index]
    result = compress_result(json.dumps(value), limit_tokens=900)
    body = result.rsplit("\n", 1)[0]
    shape = json.loads(body)
    assert list(shape) == ["total", "items", "nested", "error"]
    assert shape["total"] == 900
    assert shape["items"][0]["id"] == 0
    assert "(300 items: objects)" in shape["items"]
    assert any(isinstance(item, dict) and item["id"] == 150 for item in shape["items"])
    assert "the database is locked" in shape["error"]


PIECES = st.sampled_from(
    [
        *("error: x\n", "a,b,c\n", "1,2,3\n", '{"a": [1, 2]}\n', "| a | b |\n", "|---|---|\n", "def f():\n"),
        *("    return 1\n", "2026-01-01 10:00:00 INFO x\n", "Traceback (most recent call last):\n", "  File x\n"),
        *("你好世界\n", "🚀🚀", "word ", "\x1b[1m", "\r"),
    ]
)
TEXTS = st.text(max_size=300) | st.lists(PIECES, max_size=200).map("".join) | PIECES.map(lambda piece: piece * 300)


@settings(max_examples=100)
@given(TEXTS, st.integers(0, 600), st.sampled_from([None, "3", "abc"]))
def test_the_limit_holds(text: str, limit: int, reference: str | None) -> None:
    seen = {digest("a,b,c\n" * 300): "1"}
    result = compress_result(text, limit_tokens=limit, reference=reference, seen=seen)
    assert estimate(result) <= limit
    assert len(result) <= len(text)
    assert result == compress_result(text, limit_tokens=limit, reference=reference, seen=seen)


def test_large_hostile_inputs_are_read_in_linear_time() -> None:
    units = ("-" * 1_999 + "x\n", "::" * 140 + "\n", ";" * 299 + "x\n", "|" * 200 + "\n", "\x1b]", "a\r", '"')
    texts = [unit * (300_000 // len(unit)) for unit in (*units, "(" * 280 + "\n")]
    texts += ["[" * 100_000, "[" * 5_000 + "]" * 5_000, '{"a":' * 3_000 + "1" + "}" * 3_000]
    for text in texts:
        assert estimate(compress_result(text)) <= LIMIT
