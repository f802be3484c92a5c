"""Requests that work on a model's insides in veiled words: hint at the hidden rules, weave in a quiet instruction.

No single word gives them away, and each is harmless in most notes. What gives them away is company: within a
few
words of each other, words of concealment, of disclosure, of story-telling, and words for a model and its
rules.
Each family counts once, for two points if one of its telling words is there, else for one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from functools import cache

from herma.safety.matching import Page

_WINDOW = 30  # words
_ENOUGH = 6  # points, of sixteen

# family: (telling words, ordinary words)
_FAMILIES = {
    "veil": (
        """hidden unseen invisible subtle subtly subtlety covert covertly concealed concealing disguised
        disguising cloaked cloaking camouflage camouflaged camouflaging veiled unspoken undisclosed
        unstated unwritten nonpublic insinuate insinuates insinuating insinuated coax coaxes coaxing
        nudge nudges nudging sneak sneaking guise hint hints hinting undercurrent subtext understated
        innocuous weave weaves weaving woven oblique obliquely tacit tacitly discreetly undertone
        indirect indirectly imply implies implying smuggle""",
        """hide hides hiding conceal quiet quietly implicit implicitly silently secretly secret implied
        cue cues latent gently gentle confidential embed embeds embedding embedded slip slipping aside
        background unnamed soft softly tangent casually seemingly superficially beneath inserting insert
        tucked interwoven layered nonobvious discreet mask masking masked masks detectable obvious overt
        overtly unobtrusive piggyback interlacing intersperse behind reminder""",
    ),
    "rules": (
        """instruction instructions prompt prompts guardrail guardrails safeguard safeguards directive
        directives heuristics internals hierarchy jailbreak""",
        """policy policies guideline guidelines rule rules constraint constraints rubric criteria safety
        reasoning boundaries boundary protocol governance alignment heuristic logic restrictions
        limitations mechanism mechanisms checks""",
    ),
    "inside": (
        "internal underlying undisclosed unseen proprietary",
        "hidden private background core developer confidential meta embedded nonpublic model public level sensitive",
    ),
    "model": (
        "assistant assistants chatbot chatbots llm",
        "model models ai reader bot bots conversational",
    ),
    "disclosure": (
        """reveal reveals revealing disclose discloses disclosing divulge divulging divulges leakage
        influencing shaping coaxing eliciting elicit""",
        """expose exposes exposing revealed disclosed surface surfaces surfacing leak leaks leaking
        uncover uncovering naming stating disclosure glimpse influence influences guiding guides steer
        steers steering affect affects governing govern governs override bypass nudging mention
        mentioning explicit explicitly probing probe""",
    ),
    "story": (
        """scenario scenarios hypothetical hypothetically fictional narrative narrate seminar roleplay
        simulated pretend imagine framed framing phrased conversational""",
        """story dialogue lecture classroom simulate simulation mock frame presented casual exercise
        workshop memo briefing aside footnote persona character tone style case study analogy debate
        interview lab tutorial playbook scripted academic professional mentor consultant researcher
        student trainee""",
    ),
    "task": (
        "craft compose narrate pose devise concoct solicit formulate",
        """draft describe explain provide create generate write outline develop design propose produce
        offer summarize ask request prepare discuss present construct frame imagine simulate illustrate
        briefly walk give tell show""",
    ),
    "asking": (
        "asks requests requesting seeks probes inquires inquiry",
        "asking asked queries query question questions respond responds reply replies request",
    ),
}
_SUBJECT = ("rules", "model", "inside")

_WORDS = re.compile(r"[a-z]+")


def find_veiled(page: Page) -> Iterator[tuple[int, int]]:
    """Where such company is kept in folded text."""
    points = _points()
    if _score(points[word] for word in page.words & points.keys()) < _ENOUGH:
        return
    for line in page.lines:
        if _score(points[word] for word in line.words & points.keys()) >= _ENOUGH:
            for start, end in _in_line(line.text):
                yield line.start + start, line.start + end


def _in_line(line: str) -> Iterator[tuple[int, int]]:
    points = _points()
    near: deque[tuple[int, int, dict[str, int]]] = deque()
    for position, match in enumerate(_WORDS.finditer(line)):
        if match.group() not in points:
            continue
        near.append((position, match.start(), points[match.group()]))
        while near[0][0] < position - _WINDOW:
            near.popleft()
        if _score(families for _, _, families in near) >= _ENOUGH:
            yield near[0][1], match.end()
            near.clear()


def _score(found: Iterator[dict[str, int]]) -> int:
    best: dict[str, int] = {}
    for families in found:
        for family, worth in families.items():
            best[family] = max(worth, best.get(family, 0))
    return sum(best.values()) if any(family in best for family in _SUBJECT) else 0


@cache
def _points() -> dict[str, dict[str, int]]:
    """For each word, the families it belongs to and what it is worth there."""
    points: dict[str, dict[str, int]] = {}
    for family, (telling, ordinary) in _FAMILIES.items():
        for word in ordinary.split():
            points.setdefault(word, {})[family] = 1
        for word in telling.split():
            points.setdefault(word, {})[family] = 2
    return points
