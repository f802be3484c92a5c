"""How a conversation ended, and what went wrong on the way: judged by what was said and what the tools answered. Pure.

A judgement always comes with what it rests on. Nothing here knows whether the work is right; only whether somebody said
so, whether errors were overcome, and whether the last request got its answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from herma.episodes.phrases import (
    BROKEN,
    GAVE_UP,
    NEXT,
    NO_LONGER,
    OBJECTION,
    RESULT,
    THANKS,
    TROUBLE,
    Phrases,
    folded,
)
from herma.episodes.steps import Step, error_line, text_of
from herma.episodes.task import cleaned, cut, prose_of, sentences
from herma.types import Message
from herma.types.episodes import LONGEST_RESULT, Outcome

INTERRUPTED = "interrupted"
LONGEST_ERROR = 200
LONGEST_REMEDY = 300
_SHORT = 400
"""Characters of a user's message beyond which thanks in it may be about anything."""
_NEAR = 40
"""Steps between an error and what overcame it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error that was met, and what helped; `remedy` is empty where nothing did."""

    error: str
    remedy: str = ""
    step: int = -1


@dataclass(frozen=True, slots=True)
class Judgement:
    outcome: Outcome
    why: str
    trouble: Trouble | None = None


def judge(messages: Sequence[Message], steps: Sequence[Step], *, aborted: bool = False) -> Judgement:
    """How it ended. `aborted`: the program that held the conversation says that it broke off."""
    troubles = troubles_of(messages, steps)
    overcome = next((one for one in reversed(troubles) if one.remedy), None)
    stuck = next((one for one in reversed(troubles) if not one.remedy), None)
    word = last_word(messages)
    spoken = [message for message in messages if message.role in ("user", "assistant")]
    last = spoken[-1] if spoken else None
    reply = next((message for message in reversed(spoken) if message.role == "assistant"), None)
    if word == "content":
        return Judgement("resolved" if overcome else "successful", "the user confirmed it", overcome)
    if word == "not content":
        return Judgement("failed", "the user objected at the end", stuck or overcome)
    if last is None or reply is None or last.role == "user" or _is_cut_off(last) or _is_cut_off(messages[-1]):
        return Judgement("interrupted", "it broke off before an answer", stuck or overcome)
    if messages[-1].role in ("tool", "function") or messages[-1].tool_calls:
        return Judgement("interrupted", "it broke off while a tool was used", stuck or overcome)
    said = folded(text_of(reply.content)[:2000])
    if said in GAVE_UP:
        return Judgement("failed", "the assistant said that it did not manage", stuck or overcome)
    if stuck is not None and stuck.step >= 0 and _is_at_the_end(stuck, steps):
        return Judgement("failed", "the last error was not overcome", stuck)
    if aborted:
        return Judgement("interrupted", "the program broke off", stuck or overcome)
    if overcome is not None:
        return Judgement("resolved", "the error was overcome, and the work went on", overcome)
    if steps:
        return Judgement("successful", "the tools ended well, and nobody objected", stuck)
    return Judgement("successful", "it was answered, and nobody objected", stuck)


def last_word(messages: Sequence[Message]) -> str:
    """What the user said of the work at the end: "content", "not content", or "" where they said neither.

    Only the last message of the user counts, and only if it is short or begins so: thanks in a long one may belong to
    the next request.
    """
    users = [message for message in messages if message.role == "user"]
    if len(users) < 2:
        return ""
    said = folded(text_of(users[-1].content)[: 2 * _SHORT])
    if len(said) > _SHORT:
        return ""
    good, bad = THANKS.last(said), OBJECTION.last(said)
    if good >= 0 and BROKEN.last(said) > good and said not in NO_LONGER:
        return "not content"
    if bad >= 0 and bad + 12 >= good:
        return "not content"
    return "content" if good >= 0 and not _asks(said) else ""


_GO_ON = re.compile(
    r"(?:[,.!;]|\band|\bbut|\bund) (?:now|next|then|also|please|can you|could you|jetzt|bitte) "
    r"(?!(?:it|that|this|everything|all|i|we|the|works?|fine|good|done)\b)\w+"
)
"""What follows thanks in a few words and asks for something: "thanks, now make it shorter"."""
_AND_NOW = (
    " but ",
    " now ",
    " next ",
    " also ",
    " and then ",
    "但是",
    "不过",
    "接下来",
    "另外",
    "でも",
    "次に",
    "그런데",
)


def _asks(said: str) -> bool:
    """Whether more is asked for: "thanks, and now …" is not the end."""
    if said.endswith(("?", "？")) or _GO_ON.search(said):
        return True
    return len(said) > 40 and any(mark in said for mark in _AND_NOW)


def _is_cut_off(message: Message) -> bool:
    return message.finish_reason == INTERRUPTED


def _is_at_the_end(trouble: Trouble, steps: Sequence[Step]) -> bool:
    """Whether nothing went well after it: an early error that nobody came back to mattered to nobody."""
    return not any(step.failed is False for step in steps[trouble.step + 1 :])


# ── errors and what helped ──


def troubles_of(messages: Sequence[Message], steps: Sequence[Step]) -> list[Trouble]:
    """Errors in the order they were met: of tools first, else as people told of them."""
    found: list[Trouble] = []
    open_keys: set[str] = set()
    for at, step in enumerate(steps):
        if not step.failed:
            open_keys.discard(step.key)
            continue
        if step.key in open_keys:  # another try of the same thing: the first error tells
            found = [one for one in found if not (one.step >= 0 and steps[one.step].key == step.key and not one.remedy)]
        open_keys.add(step.key)
        found.append(Trouble(_error_text(step), _remedy(steps, at), at))
    return found or _told(messages)


def _error_text(step: Step) -> str:
    what = f"{step.subject}: " if step.subject and len(step.subject) <= 80 else f"{step.tool}: "
    return cut(what + error_line(step.output), LONGEST_ERROR)


def _remedy(steps: Sequence[Step], at: int) -> str:
    """What was done between a failure and the next success of the same thing."""
    failed = steps[at]
    for later in range(at + 1, min(len(steps), at + 1 + _NEAR)):
        step = steps[later]
        if step.key != failed.key or step.failed is not False:
            continue
        between = [one for one in steps[at + 1 : later] if one.failed is False and one.subject]
        if step.subject != failed.subject:
            helped = f"{step.words} worked"
            before = [one.words for one in between[-2:]]
        else:
            helped = f"then {step.words} worked"
            before = [one.words for one in between[-3:]]
        return cut("; ".join([*dict.fromkeys(before), helped]), LONGEST_REMEDY)
    return ""


def _told(messages: Sequence[Message]) -> list[Trouble]:
    """An error that the user told of, and the answer after which they were content."""
    error, answer = "", ""
    for message in messages:
        if message.role == "user":
            text = text_of(message.content)
            said = folded(text[:_SHORT])
            if error and answer and said in THANKS and said not in OBJECTION:
                return [Trouble(error, answer)]
            told = next((one for one in sentences(text[:4000]) if _tells(one)), "")
            if told and not (error and said in OBJECTION):  # "still the same error" tells less than what it was
                error = cut(told, LONGEST_ERROR)
        elif message.role == "assistant" and error and not message.tool_calls:
            answer = key_sentence(text_of(message.content), LONGEST_REMEDY) or answer
    return [Trouble(error)] if error else []


_ORDER = re.compile(
    r"\W*(?:please |pls )?(?:fix|debug|solve|resolve|repair|find|investigate|look|check|help|add|write|make"
    r"|handle|improve|behebe|修复|修復|解决|解決|调试|調試|检查|排查|直して|修正して|고쳐|수정)",
    re.IGNORECASE,
)


def _tells(sentence: str) -> bool:
    """Whether it tells of an error; "fix the error" only asks for something."""
    return folded(sentence[:500]) in TROUBLE and _ORDER.match(cleaned(sentence, 500)) is None


# ── what came of it ──


def result_of(messages: Sequence[Message]) -> str:
    """The sentence that says most about what came of it, from the last reply that says anything.

    What is answered to thanks is not it.
    """
    content = last_word(messages) == "content"
    end = next((at for at, one in reversed(list(enumerate(messages))) if one.role == "user"), 0) if content else None
    for message in reversed(messages[:end]):
        if message.role == "assistant" and not _is_cut_off(message):
            found = key_sentence(text_of(message.content), LONGEST_RESULT)
            if found:
                return found
    return ""


_COURTESY = Phrases(
    "you're welcome, you are welcome, glad to help, happy to help, anytime, my pleasure, no problem, sure",
    "of course, certainly",
    "great question, let me know, feel free, is there anything else, gern geschehen, de rien, de nada",
    "不客气, 不客氣, 不用谢, 很高兴, 很高興, どういたしまして, お役に立て, 천만에요, 도움이 되어",
)


def key_sentence(text: str, longest: int) -> str:
    """The first sentence with a result in it, else the first that is one; not courtesies, not what comes next."""
    lines = prose_of(text)[:8_000].splitlines()
    heading = next((at for at, line in enumerate(lines) if NEXT.match(line[:120].strip().rstrip(":："))), None)
    said = sentences("\n".join(lines[:heading]))
    candidates = [one for one in said if _is_sentence(one) and not _COURTESY.starts(folded(one[:60]))]
    chosen = next((one for one in candidates[:12] if folded(one) in RESULT), "") or next(iter(candidates), "")
    return cut(chosen or " ".join(said[:1]), longest)


def _is_sentence(text: str) -> bool:
    return len(text) >= (4 if ord(text[0]) > 0x2E7F else 12)
