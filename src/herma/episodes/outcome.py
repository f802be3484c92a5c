"""How it ended, and why that is thought (pure)."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from herma.episodes.types import LONGEST_RESULT, Episode, Outcome, Weight
from herma.prompt.fence import sanitize
from herma.text import Late
from herma.types import Content, Message

# ---------- episodes.phrases
#
# Words by which people and programs say how something went: English, Chinese, Japanese and Korean, some German.
#
# Every list is matched against a short, folded text. A phrase in letters is matched as whole words; one in a script
# without spaces is matched anywhere. They are few and plain on purpose: a wrong judgement is worse than none.

_SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")


class Phrases:
    """A list of phrases, looked for in linear time."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Made when it is first needed: most programs that load this module judge nothing."""
        words = [phrase.strip() for line in self._lines for phrase in line.split(",") if phrase.strip()]
        spaced = [re.escape(word).replace(r"\ ", " ") for word in words if not _SPACELESS.search(word)]
        free = [re.escape(word) for word in words if _SPACELESS.search(word)]
        parts = [rf"(?<![\w'])(?:{'|'.join(sorted(spaced, key=len, reverse=True))})(?![\w'])"] if spaced else []
        parts += sorted(free, key=len, reverse=True)
        return re.compile("|".join(parts))

    def __contains__(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def starts(self, text: str) -> bool:
        return self._pattern.match(text) is not None

    def cut(self, text: str) -> str:
        """The text behind one of them that it begins with."""
        found = self._pattern.match(text)
        return text[found.end() :] if found else text

    def last(self, text: str) -> int:
        """Where the last of them begins; -1 where there is none."""
        at = -1
        for found in self._pattern.finditer(text):
            at = found.start()
        return at


def folded(text: str) -> str:
    """Lower case, one kind of apostrophe, one space between words."""
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())


THANKS = Phrases(
    "thanks, thank you, thx, ty, cheers, much appreciated, perfect, great, awesome, excellent, brilliant, lovely",
    "works now, it works, that works, working now, that worked, it worked, that did it, solved, fixed now",
    "looks good",
    "lgtm, well done, good job, nice work, nice one, exactly what i wanted, all good, that's it, ship it, merged",
    "谢谢, 感谢, 多谢, 謝謝, 感謝, 太好了, 太棒了, 可以了, 好了, 解决了, 解決了, 没问题了, 沒問題了, 成功了, 搞定",
    "完美",
    "ありがとう, 助かりました, 助かった, 直りました, 直った, 動きました, 動いた, 解決しました, 完璧",
    "うまくいきました",
    "감사합니다, 고마워, 고맙습니다, 됐어요, 해결됐, 완벽해, 잘 됩니다, 잘 돼요",
    "danke, vielen dank, funktioniert jetzt, passt so, klappt jetzt, merci, ça marche, gracias, funciona ahora",
)
"""A user is content."""

OBJECTION = Phrases(
    "doesn't work, does not work, didn't work, did not work, not working, still fails, still failing, still broken",
    "still doesn't, still not, that's wrong, this is wrong, that is wrong, not what i, wrong answer, incorrect",
    "same error, still the same, it broke, you broke, makes no sense, useless, give up, never mind, nevermind",
    "forget it",
    "same problem, no luck, fails again, worse than before",
    "不行, 不对, 不對, 还是报错, 還是報錯, 没用, 沒用, 错了, 錯了, 失败了, 失敗了, 还是不, 還是不, 算了, 没解决",
    "沒解決",
    "動かない, 動きません, 違います, 違う, 直らない, 直りません, まだエラー, だめ, ダメ, うまくいかない",
    "안 돼, 안돼, 안 됩니다, 틀렸, 여전히 오류, 아직도 안",
    "geht nicht, funktioniert nicht, immer noch, stimmt nicht, falsch, ne marche pas, no funciona",
)
"""A user is not content."""

BROKEN = Phrases(
    "broken, crashes, crashed, fails, failing, kaputt, stürzt ab, 坏了, 壞了, 崩溃了, 崩潰了, 壊れた, 고장",
)
"""After thanks these are a complaint: "great, now everything is broken"."""
NO_LONGER = Phrases(
    "no longer, not, never, nothing, no more, without, isn't, doesn't, stopped, anymore",
    "nicht mehr, kein, 不再, 没有, 沒有, 不会, もう, 더 이상",
)
"""… unless it is said that they are over."""

GAVE_UP = Phrases(
    "i couldn't, i could not, i was unable, i'm unable, i am unable, unable to complete, i wasn't able",
    "i can't complete",
    "i failed to, could not be completed, i'm blocked, i am blocked, i have to stop here",
    "我无法, 我無法, 无法完成, 無法完成, 未能, 没能, 沒能, 做不到",
    "できませんでした, 完了できません, 対応できません, 할 수 없었습니다, 완료하지 못했습니다, 실패했습니다",
    "ich konnte nicht, ist mir nicht gelungen, je n'ai pas pu, no pude",
)
"""An assistant says that it did not manage."""

RESULT = Phrases(
    "fixed, done, created, added, updated, removed, resolved, implemented, passes, passing, pass, now, works",
    "deployed",
    "merged, written, renamed, moved, installed, configured, found, the cause, because, root cause, the answer",
    "finished",
    "完成, 已修复, 已修復, 修复了, 修復了, 已创建, 已添加, 已更新, 通过, 通過, 原因是, 现在, 現在, 成功, 结果",
    "完了, 修正しました, 作成しました, 追加しました, 更新しました, 原因は, 解決, 動作します, 완료, 수정했, 추가했",
    "원인은",
    "erledigt, behoben, angelegt, hinzugefügt, geändert, terminé, corrigé, listo, arreglado",
)
"""A sentence that says what came of it."""

SMALL_TALK = Phrases(
    "hi, hello, hey, good morning, good evening, good afternoon, good night, yo, howdy, sup, how are you, bye",
    "goodbye",
    "test, testing, ping, ok, okay, yes, no, yep, nope, sure, cool, continue, go on, please continue, proceed",
    "你好, 您好, 嗨, 早上好, 晚上好, 再见, 再見, 继续, 繼續, 好的, 在吗, 在嗎",
    "こんにちは, おはよう, こんばんは, さようなら, 続けて, はい, いいえ, 안녕, 안녕하세요, 계속",
    "hallo, guten morgen, guten tag, moin, tschüss, bonjour, salut, hola, weiter, ja, nein",
)
"""What begins or ends a conversation and asks for nothing."""

TROUBLE = Phrases(
    "error, errors, fails, failed, failing, failure, broken, crash, crashes, crashed, exception, traceback",
    "doesn't work, not working, cannot, can't, won't start, timed out, timeout, segfault, panic, denied, not found",
    "报错, 報錯, 错误, 錯誤, 失败, 失敗, 崩溃, 崩潰, 异常, 異常, 不工作, 无法, 無法, 超时",
    "エラー, 失敗, 動かない, 動きません, 例外, クラッシュ, 不具合, バグ, 오류, 에러, 실패, 안 돼, 예외",
    "fehler, schlägt fehl, absturz, kaputt, erreur, échec, fallo",
)
"""Something is wrong."""

FAILED_OUTPUT = Phrases(
    "traceback (most recent call last), command not found, no such file or directory, permission denied",
    "segmentation fault",
    "fatal, panic, error, errors, exception, failed, failure, timed out, timeout, connection refused",
    "modulenotfounderror",
    "syntaxerror, cannot find module, undefined reference, assertionerror, exit code 1, exit status 1, non-zero exit",
    "错误, 錯誤, 失败, 失敗, 异常, エラー, 失敗しました, 오류, 실패",
)
"""The beginning or the end of a tool's output that is no result."""

NEXT = re.compile(
    r"^\W*(?:next steps?|next up|next|remaining(?: work| tasks| steps)?|still (?:to do|open|left|missing)|to ?dos?"
    r"|follow[- ]ups?|open (?:points|questions|tasks|items)|what(?:'s| is) left|nächste schritte|noch offen"
    r"|prochaines étapes"
    r"|下一步|接下来|接下來|后续|後續|待办|待辦|剩余|剩餘|未完成|次のステップ|次は|残り|残作業|今後の予定|다음 단계"
    r"|남은 작업|할 일)\W*$",
    re.IGNORECASE,
)
"""A heading of what is still to be done, alone on its line."""
NEXT_INLINE = re.compile(
    r"(?:^|(?<=[.!?。！？\n]))\W*((?:next steps?\s*:|next,|next i(?:'ll| will)|the next step is(?: to)?|i(?:'ll"
    r"| will) (?:now|next)"
    r"|remaining\s*:|todo\s*:|下一步(?:是|：|:)?|接下来(?:我)?(?:会|将|要)?|接下來(?:我)?(?:會|將|要)?|次は"
    r"|次のステップは|다음으로|다음 단계는"
    r"|als nächstes)\s*[^\n]{3,300})",
    re.IGNORECASE,
)
"""A sentence that says what comes next."""


# ---------- episodes.steps
#
# A transcript as steps: which tool was given what, and whether it went well. Pure and linear.

COMMANDS = ("command", "cmd", "script", "shell_command", "code", "bash")
PATHS = (
    "path",
    "file_path",
    "filepath",
    "filename",
    "file",
    "notebook_path",
    "target_file",
    "absolute_path",
    "file_name",
)
FOLDERS = ("cwd", "workdir", "working_directory", "working_dir", "directory")
SUBJECTS = (
    *COMMANDS,
    *PATHS,
    "url",
    "query",
    "q",
    "pattern",
    "prompt",
    "task",
    "description",
    "name",
    "action",
    "title",
)
_LOOKED_AT = 600
"""Characters at each end of an output that tell whether it went well."""
_EXIT = Late(
    r"(?:exit|return)(?:ed)?[ _-]?(?:code|status|with)?[ \"':=]{1,4}(?:code )?(-?\d{1,3})(?!\d)", re.IGNORECASE
)
_FLAG = Late(r'"(?:success|ok)"\s{0,4}:\s{0,4}(true|false)\b')
_LOOKING = frozenset(
    ("grep", "egrep", "fgrep", "rg", "ag", "git grep", "git diff", "diff", "cmp", "test", "which", "pgrep")
)
"""Programs that say "no" by an exit code of 1."""
_WRAPPED = Late(r"^(?:bash|sh|zsh|/bin/bash|/bin/sh)$")
_ASSIGNED = Late(r"^\w+=\S*$")


@dataclass(frozen=True, slots=True)
class Step:
    """One use of a tool. `failed` is None where it has no result; `key` is the same for another try of the same."""

    tool: str
    subject: str
    key: str
    message: int
    arguments: Mapping[str, Any]
    failed: bool | None = None
    output: str = ""

    @property
    def words(self) -> str:
        return f"{self.tool}: {self.subject}" if self.subject else self.tool


def steps_of(messages: Sequence[Message]) -> list[Step]:
    """Every use of a tool, in order, with what came of it."""
    found: list[Step] = []
    waiting: dict[str, int] = {}
    for message in messages:
        for call in message.tool_calls if message.role == "assistant" else ():
            name, arguments = read_call(call)
            if not name:
                continue
            subject = _subject(arguments)
            waiting[str(call.get("id", ""))] = len(found)
            found.append(Step(name, subject, _key(name, arguments), message.id, arguments))
        if message.role in ("tool", "function"):
            at = waiting.pop(message.tool_call_id or "", None)
            output = text_of(message.content)
            if at is not None:
                step = found[at]
                failed = has_failed(output) and not _found_nothing(step.key, output)
                found[at] = Step(step.tool, step.subject, step.key, step.message, step.arguments, failed, output)
            elif message.tool_name:
                found.append(Step(message.tool_name, "", message.tool_name, message.id, {}, has_failed(output), output))
    return found


def read_call(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call, in the ways they are written."""
    function = call.get("function")
    inner: Mapping[str, Any] = function if isinstance(function, Mapping) else call
    given = inner.get("arguments", inner.get("input"))
    if isinstance(given, str):
        try:
            given = json.loads(given) if len(given) < 200_000 else {}
        except (ValueError, RecursionError):
            given = {"command": given}
    name = inner.get("name")
    return str(name) if isinstance(name, str) else "", dict(given) if isinstance(given, Mapping) else {}


def text_of(content: Content) -> str:
    """The words of a content."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


def has_failed(output: str) -> bool:
    """Whether a tool's output says that it did not do what it was asked to.

    What it says in fields (exit code, success, error) counts; else how it begins and ends.
    """
    stripped = output.strip()
    if stripped.startswith("{"):
        said = _said_in_fields(stripped)
        if said is None:  # cut in its middle, most likely: the field itself may still be there
            flag = _FLAG.search(stripped[:_LOOKED_AT]) or _FLAG.search(stripped[-_LOOKED_AT:])
            said = (flag[1] == "false") if flag else None
        if said is not None:
            return said
    ends = f"{stripped[:_LOOKED_AT]}\n{stripped[-_LOOKED_AT:]}" if len(stripped) > 2 * _LOOKED_AT else stripped
    code = None
    for found in _EXIT.finditer(ends):
        code = found[1]
    if code is not None:
        return code.lstrip("-0") != ""
    first, last = _edge_lines(stripped)
    return any(_is_error_line(line) for line in (*first, *last))


def _found_nothing(key: str, output: str) -> bool:
    """Whether a program that looks for something says no more than that it is not there."""
    if key.rpartition("\0")[2] not in _LOOKING:
        return False
    codes = [found[1] for found in _EXIT.finditer(output[-_LOOKED_AT:])]
    lines = [line for line in _edge_lines(output)[0] if not _EXIT.search(line)]
    return codes[-1:] == ["1"] and not any(_is_error_line(line) for line in lines)


def _said_in_fields(text: str) -> bool | None:
    if len(text) > 200_000:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    for name in ("exit_code", "returncode", "exitCode", "status_code", "code"):
        number = value.get(name)
        if isinstance(number, int) and not isinstance(number, bool):
            return number >= 400 if name == "status_code" else number != 0
    for name in ("success", "ok"):
        if isinstance(value.get(name), bool):
            return not value[name]
    for name in ("is_error", "isError"):
        if isinstance(value.get(name), bool):
            return bool(value[name])
    return bool(value.get("error")) if "error" in value else None


def _edge_lines(text: str) -> tuple[list[str], list[str]]:
    """The first and the last lines with something in them."""
    first = [line.strip()[:300] for line in text[:_LOOKED_AT].splitlines() if line.strip()][:1]
    last = [line.strip()[:300] for line in text[-_LOOKED_AT:].splitlines() if line.strip()][-1:]
    return first, last


_ERROR_LINE = Late(
    r"^(?:\[?(?:error|fatal|panic|exception|failed|failure)(?:\s*[:：!\]]|\s*$| (?:while|when|executing|running|reading"
    r"|writing|calling|opening|code|status|\d)\b)|(?:failed|unable) to |(?:错误|錯誤|エラー|오류)(?:\s*[:：!！\]]|\s*$)"
    r"|traceback \(most recent"
    r"|\w{1,60}(?:\.\w{1,60}){0,6}(?:error|exception)\b\s*[:(]|error\[|e\s{2,}\w+error"
    r"|={2,}.*\b[1-9]\d{0,5} (?:failed|errors?)\b|(?:failed|error) [\w./:\[\]-]{1,120} - "
    r"|(?:bash|sh|zsh)[:\w ]{0,20}: .*(?:not found|no such file|denied)|.{0,120}: (?:command not found"
    r"|no such file or directory"
    r"|permission denied)|npm err!|make: \*\*\*|[1-9]\d{0,5} failed\b|执行失败|操作失败)",
    re.IGNORECASE,
)


def _is_error_line(line: str) -> bool:
    return _ERROR_LINE.match(line) is not None


def error_line(output: str) -> str:
    """The line of a failed output that says most: the last one that names an error, or else the last one."""
    stripped = output.strip()
    if stripped.startswith("{"):
        try:
            value = json.loads(stripped) if len(stripped) < 200_000 else None
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            inner = next(
                (value[n] for n in ("error", "stderr", "output", "message") if isinstance(value.get(n), str)), ""
            )
            stripped = inner.strip() or stripped
    lines = [line.strip() for line in stripped[-4000:].splitlines() if line.strip()]
    named = [line for line in lines if _is_error_line(line)] or [
        line for line in lines if folded(line[:200]) in FAILED_OUTPUT
    ]
    return (named or lines or [""])[-1]


def _subject(arguments: Mapping[str, Any]) -> str:
    """What a tool was used on, in a few words."""
    for name in SUBJECTS:
        value = arguments.get(name)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if isinstance(value, str) and value.strip():
            return " ".join(value[:400].split())[:100]
    return ""


def _key(tool: str, arguments: Mapping[str, Any]) -> str:
    """What makes two uses tries of the same thing: the tool with the program it runs, or with the file it works on."""
    for name in COMMANDS:
        value = arguments.get(name)
        if isinstance(value, list):
            value = " ".join(word for word in value if isinstance(word, str))
        if isinstance(value, str) and value.strip():
            return f"{tool}\0{program(value)}"
    for name in PATHS:
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            return f"{tool}\0{value.strip()}"
    return tool


def program(command: str) -> str:
    """The program that a command line is about: `cd x && FOO=1 sudo pytest -q tests` → `pytest`."""
    last = re.split(r"&&|\|\||;|\n", command[:2000])
    for piece in reversed([part for part in last if part.strip()]):
        words = [word for word in piece.split("|")[0].split() if not _ASSIGNED.match(word)]
        words = [
            word for word in words if word not in ("sudo", "time", "env", "exec", "nohup", "uv", "run", "npx", "poetry")
        ]
        words = [word for word in words if not word.startswith("-")]
        if len(words) > 1 and _WRAPPED.match(words[0]):
            words = words[1:]
        if words and words[0] not in ("cd", "echo", "export", "set", "true", "source"):
            name = words[0].rsplit("/", 1)[-1]
            takes_verb = name in (
                "git",
                "npm",
                "pnpm",
                "yarn",
                "cargo",
                "go",
                "docker",
                "kubectl",
                "make",
                "pip",
                "python",
                "python3",
            )
            return f"{name} {words[1].rsplit('/', 1)[-1]}" if takes_verb and len(words) > 1 else name
    return ""


def paths_of(step: Step) -> Iterator[str]:
    """Files that a step was given."""
    for name in PATHS:
        value = step.arguments.get(name)
        if isinstance(value, str) and 0 < len(value.strip()) <= 400 and "\n" not in value:
            yield value.strip()
    patch = step.arguments.get("patch") or step.arguments.get("input") or step.arguments.get("diff")
    if isinstance(patch, str):
        for found in re.finditer(
            r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ b/)(\S[^\n]{0,300})$", patch[:200_000], re.MULTILINE
        ):
            yield found[1].strip()


_WRITES = Late(r"write|edit|patch|create|replace|insert|save|append|rename|move|delete|notebook", re.IGNORECASE)


def is_writing(step: Step) -> bool:
    """Whether a step changes a file, by the name of its tool or what it was asked to do."""
    action = step.arguments.get("action") or step.arguments.get("command")
    verb = str(action) if isinstance(action, str) and len(action) < 30 else ""
    return _WRITES.search(step.tool) is not None or (bool(verb) and _WRITES.match(verb) is not None)


# ---------- episodes.task
#
# What a conversation was about: its first substantial request, cleaned, and the kind of work. Pure and linear.

LONGEST_TASK = 300
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
"""Signs that only steer a terminal, or the direction of writing."""
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_OPENER = re.compile(r"<([a-z][a-z0-9_-]{1,40})(?: [^<>]{0,300})?>", re.IGNORECASE)
_MOST_TAGS = 50
_LINKS = re.compile(r"!?\[([^\[\]\n]{0,200})\]\([^()\s]{0,500}\)")
_MARKS = re.compile(r"^[ \t]*(?:[#>*+-]{1,6}|\d{1,3}[.)])[ \t]+", re.MULTILINE)
_BOLD = re.compile(r"(\*\*|__|`)")
_POLITE = re.compile(
    r"^(?:(?:hi|hello|hey|ok|okay|so|well|please|pls|hallo|bitte|hola|bonjour)(?: there| again| claude| herma"
    r"| hermes)?(?:[\s,!:;-]+|\.\s+)"
    r"|(?:can|could|would|will) you (?:please |kindly |help me (?:to )?)?|i(?:'d| would) like (?:you )?to "
    r"|i (?:want|need) (?:you )?to "
    r"|help me (?:to )?|let's |kannst du (?:bitte )?|könntest du (?:bitte )?"
    r"|(?:你好|您好|嗨)[，,。！!\s]*|请问|請問|请帮我|請幫我|帮我|幫我|请你?|請你?|麻烦你?|麻煩你?|能不能|可以帮我"
    r"|可以幫我"
    r"|(?:すみません|こんにちは)[、。！!\s]*)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])|(?<=[。！？])|\n+")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_WORDS = re.compile(r"[^\W_]+")


def task_of(messages: Sequence[Message]) -> tuple[str, int]:
    """The first request that asks for something, and the number of its message; ("", 0) where nobody asked."""
    for message in messages:
        if message.role == "user":
            task = cleaned(text_of(message.content))
            if is_substantial(task):
                return task, message.id
    return "", 0


def cleaned(text: str, longest: int = LONGEST_TASK) -> str:
    """A message as a short statement: no code, tags, marks or courtesies, as many whole sentences as fit."""
    return cut(prose_of(text), longest)


def prose_of(text: str) -> str:
    """The words of a message in their lines, without code, tags, marks and courtesies."""
    text = sanitize(_UNSEEN.sub(" ", text[:40_000]))
    prose = _untagged(_CODE.sub("\n", text)).strip() or _CODE.sub(lambda m: m[0].strip("`"), text)
    prose = _BOLD.sub("", _MARKS.sub("", _LINKS.sub(r"\1", prose)))
    prose = prose.strip()
    for _ in range(3):
        shorter = _POLITE.sub("", prose, count=1).strip()
        if shorter == prose or not shorter:
            break
        prose = shorter
    return prose


def _untagged(text: str) -> str:
    """Without what stands between tags, as programs put round what they add to a message."""
    pieces, at = [], 0
    for _ in range(_MOST_TAGS):
        opener = _OPENER.search(text, at)
        if opener is None:
            break
        close = text.find(f"</{opener[1]}>", opener.end())
        pieces.append(text[at : opener.start()])
        at = close + len(opener[1]) + 3 if close >= 0 else opener.end()
    return " ".join([*pieces, text[at:]])


def cut(text: str, longest: int) -> str:
    """As many whole sentences as fit; the first one is cut where even it does not."""
    kept = ""
    for sentence in sentences(text):
        longer = f"{kept} {sentence}" if kept else sentence
        if len(longer) > longest:
            break
        kept = longer
    if kept:
        return kept
    line = " ".join(text[: longest * 4].split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def sentences(text: str) -> list[str]:
    """Sentences on one line each, empty ones left out."""
    return [line for piece in _SENTENCE_END.split(text) if (line := " ".join(piece.split()))]


def is_substantial(task: str) -> bool:
    """Whether a message asks for something: more than a greeting, a thank you or a "go on"."""
    said = folded(task).strip(" .,!?~。！？、…")
    if not said:
        return False
    rest = said
    for phrases in (SMALL_TALK, THANKS):
        rest = _without(rest, phrases)
    letters = _WORDS.findall(rest)
    if _CJK.search(rest):
        return sum(len(word) for word in letters) >= 4
    return len(letters) >= 2 and sum(map(len, letters)) >= 6


def _without(text: str, phrases: Phrases) -> str:
    while phrases.starts(text):
        shorter = phrases.cut(text).lstrip(" .,!?~;:-。！？、")
        if shorter == text:
            break
        text = shorter
    return text


def task_key(task: str) -> str:
    """The task folded to its words: the same for two ways of writing the same request."""
    return " ".join(_WORDS.findall(folded(task)))[:200]


# ── the kind of work ──

_KINDS: Mapping[str, Phrases] = {
    "writing": Phrases(
        "write a letter, write an email, draft, essay, blog post, article, translate, translation, proofread",
        "summarize, summarise",
        "summary, cover letter, poem, story, email, speech, newsletter, 写一, 寫一, 翻译, 翻譯, 总结, 總結, 邮件",
        "文章, 摘要, 润色",
        "翻訳, 要約, メール, 文章, 記事, 번역, 요약, 이메일, übersetze, zusammenfassung",
    ),
    "planning": Phrases(
        "plan, schedule, itinerary, trip, travel, agenda, roadmap, calendar, remind, reminder, book a, organize",
        "organise, meeting",
        "计划, 計劃, 行程, 旅行, 日程, 提醒, 安排, 予定, 計画, 旅行, 계획, 일정, 여행, reise, termin",
    ),
    "data": Phrases(
        "csv, spreadsheet, excel, dataset, sql, query the, chart, plot, statistics, dataframe, pandas",
        "analyze the data, analyse the data",
        "数据, 數據, 表格, 图表, 圖表, 统计, データ, 集計, グラフ, 데이터, 통계, daten, tabelle",
    ),
    "operations": Phrases(
        "deploy, deployment, server, docker, kubernetes, nginx, install, upgrade, backup, ssh, systemd, terraform",
        "dns, certificate",
        "部署, 服务器, 伺服器, 安装, 安裝, 升级, 备份, サーバー, デプロイ, インストール, 서버, 배포, 설치",
        "einrichten, installiere",
    ),
    "coding": Phrases(
        "code, function, class, refactor, implement, script, unit test, tests, compile, api, repository, commit",
        "pull request, type hints",
        "python, javascript, typescript, rust, java, regex, endpoint, module, library, lint, feature",
        "代码, 代碼, 函数, 函數, 重构, 实现, 實現, 脚本, 接口, 测试, コード, 関数, 実装, スクリプト, リファクタ",
        "코드, 함수, 구현",
    ),
}
_DEBUG = Phrases(
    "fix, debug, bug, broken, crash, crashes, traceback, exception, stack trace, regression, flaky, error, errors",
    "fails, failing, why does",
    "修复, 修復, 调试, 調試, 报错, 報錯, 崩溃, 错误, 錯誤, 直して, バグ, エラー, 修正, 고쳐, 오류, 버그, 디버그",
    "fehler, behebe",
)
_BUG = Phrases("bug, bugs, debug, traceback, stack trace, flaky test, バグ, 버그, 调试, 調試, 디버그")
"""Of programs only; "fix" and "error" are said of other things too."""
_ASKING = Phrases(
    "what, who, when, where, why, how, which, explain, compare, research, find out, look up, is there",
    "difference between",
    "什么, 什麼, 为什么, 為什麼, 怎么, 怎麼, 如何, 哪, 谁, 解释, 解釋, 比较, 査, 何, なぜ, どう, いつ, どこ",
    "教えて, 무엇, 왜, 어떻게, 알려",
    "was, wer, wann, wo, warum, wie, erkläre, pourquoi, comment, qué, cómo",
)
_RUNNING = re.compile(r"terminal|bash|shell|exec|run|command|process", re.IGNORECASE)
_WEB = re.compile(r"web|browser|search|fetch|http|crawl|research", re.IGNORECASE)


def category_of(task: str, steps: Sequence[Step]) -> str:
    """The kind of work, by the words of the task first and by the tools where these say nothing."""
    said = folded(task)
    works = any(is_writing(step) or _RUNNING.search(step.tool) for step in steps)
    if said in _BUG or (said in _DEBUG and (works or said in _KINDS["coding"] or said in TROUBLE)):
        return "debugging"
    for kind, words in _KINDS.items():
        if said in words:
            return kind
    if works:
        return "coding" if any(is_writing(step) for step in steps) else "operations"
    if any(_WEB.search(step.tool) and step.tool != "session_search" for step in steps):
        return "research"
    return "question" if said in _ASKING or "?" in said or "？" in task else "other"


# ---------- episodes.similar
#
# Which earlier tasks are like this one: terms, how much of them an episode covers, and two rankings made one. Pure.

MOST_TERMS = 24
_WORD = re.compile(r"[^\W_]+")
_RUN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]+")
_STEADY = 10
"""How much the first place of a ranking is worth more than the second."""


@dataclass(frozen=True, slots=True)
class Language:
    """How words are read: what says nothing, and what is the same word."""

    empty: Collection[str] = frozenset()
    stem: Callable[[str], str] = str


def terms_of(text: str, language: Language, most: int = MOST_TERMS) -> tuple[str, ...]:
    """What a text is found by: the stem of each word that says something, pairs of characters of other scripts."""
    found: dict[str, None] = {}
    said = folded(text[:4_000])
    for run in _RUN.findall(said):
        found.update((run[at : at + 2], None) for at in range(max(1, len(run) - 1)))
    for word in _WORD.findall(_RUN.sub(" ", said)):
        if word in language.empty or len(word) < 2:
            continue
        found[language.stem(word[:40])] = None
    return tuple(found)[:most]


def coverage(matches: Sequence[Sequence[int]], total: int) -> dict[int, float]:
    """Which share of the terms each episode has, rare terms counting for more. Between 0 and 1.

    `matches` has, for each term, the episodes that have it. A term that none has is as telling as one can be, and
    counts for half: the episode may say it in another word.
    """
    everything = max(total, 1)
    weights = [math.log(1 + (max(everything - len(have), 0) + 0.5) / (len(have) + 0.5)) for have in matches]
    whole = sum(weight if have else weight / 2 for weight, have in zip(weights, matches, strict=True))
    found: dict[int, float] = {}
    for weight, have in zip(weights, matches, strict=True):
        for number in have:
            found[number] = found.get(number, 0.0) + weight / whole
    return found


def fused(by_words: Sequence[int], by_meaning: Sequence[int]) -> list[int]:
    """Both rankings as one: by places, so that the scores of the two need not be comparable."""
    places: dict[int, float] = {}
    for ranking in (by_words, by_meaning):
        for place, number in enumerate(ranking):
            places[number] = places.get(number, 0.0) + 1.0 / (_STEADY + place)
    return sorted(places, key=lambda number: -places[number])


def ranked(scores: Mapping[int, float]) -> list[int]:
    """The best by score first; among equals the newest."""
    return sorted(scores, key=lambda number: (-scores[number], -number))


# ---------- episodes.outcome
#
# How a conversation ended, and what went wrong on the way: judged by what was said and what the tools answered. Pure.
#
# A judgement always comes with what it rests on. Nothing here knows whether the work is right; only whether somebody
# said so, whether errors were overcome, and whether the last request got its answer.

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


# ---------- episodes.verdict
#
# What an episode says of the skills that were read in it: each one's share in how it ended. Pure.


class Verdict(NamedTuple):
    """What is to be added to a skill's numbers; less than 0 where an earlier verdict is taken back."""

    successes: int = 0
    failures: int = 0


def verdicts(before: Episode | None, now: Episode) -> Mapping[str, Verdict]:
    """By skill, what changes with the new state of an episode. Made again from the same conversation, nothing does:
    every conversation counts once for each skill, as it ended last."""
    names = dict.fromkeys((*(before.skills_applied if before is not None else ()), *now.skills_applied))
    found = {}
    for name in names:
        old = _of(before, name) if before is not None else Verdict()
        new = _of(now, name)
        change = Verdict(new.successes - old.successes, new.failures - old.failures)
        if change != Verdict():
            found[name] = change
    return found


def _of(episode: Episode, skill: str) -> Verdict:
    """What was broken off, or ended nobody knows how, says nothing of a skill."""
    if skill not in episode.skills_applied:
        return Verdict()
    return Verdict(int(episode.outcome in ("successful", "resolved")), int(episode.outcome == "failed"))


# ---------- episodes.value
#
# What an episode is worth: as one pure function, used for showing the best and for putting away the least.

DAY = 86_400.0
HALF_LIFE_DAYS = 90.0
"""Days after which what nobody used counts for three quarters; it never counts for less than half."""
_ENDED: dict[Outcome, float] = {
    "resolved": 1.0,
    "successful": 0.9,
    "unclear": 0.4,
    "interrupted": 0.35,
    "failed": 0.15,
}
_FAILED_WITH_REMEDY = 0.8
_SUPERSEDED = 0.3
_MOST_USES = 20


def weight_of(episode: Episode) -> Weight:
    return Weight(
        episode.id,
        episode.ended,
        episode.outcome,
        bool(episode.remedy),
        episode.uses,
        episode.last_used,
        episode.superseded_by is not None,
    )


def value(weight: Weight, now: float, similarity: float = 1.0) -> float:
    """How it ended × how lately it was of use × how often × how near it is to what is wanted. Between 0 and 1.5."""
    ended = _ENDED[weight.outcome]
    if weight.has_remedy and weight.outcome in ("failed", "interrupted", "unclear"):
        ended = max(ended, _FAILED_WITH_REMEDY)
    age = max(0.0, now - max(weight.ended, weight.last_used or 0.0)) / DAY
    recency = 0.5 + 0.5 * math.exp2(-min(age, 36_500.0) / HALF_LIFE_DAYS)
    used = 1.0 + min(max(weight.uses, 0), _MOST_USES) / (2.0 * _MOST_USES)
    stands = _SUPERSEDED if weight.superseded else 1.0
    return min(max(similarity, 0.0), 1.0) * ended * recency * used * stands


def is_worth_showing(episode: Episode) -> bool:
    """Successful, or failed with a known remedy; not outdated by a later one, and not from outside."""
    helpful = episode.outcome in ("successful", "resolved") or bool(episode.remedy)
    return helpful and episode.superseded_by is None and episode.archived is None and not from_outside(episode)


def from_outside(episode: Episode) -> bool:
    """Whether its conversation was imported: then its text is a candidate, and reaches no prompt by itself."""
    return episode.source.startswith("import")


def least_valuable(weights: Sequence[Weight], most: int, now: float) -> list[int]:
    """Which to put away so that `most` are left, the least valuable first; among equals the oldest."""
    excess = len(weights) - most
    if excess <= 0:
        return []
    ranked = sorted(weights, key=lambda one: (value(one, now), one.ended, one.id))
    return [one.id for one in ranked[:excess]]


def best(episodes: Iterable[Episode], project: str, now: float) -> list[Episode]:
    """Those worth showing where nobody has said yet what is wanted: of the same project first, then by value."""
    shown = [one for one in episodes if is_worth_showing(one)]
    return sorted(
        shown, key=lambda one: (one.scope.project != project, -value(weight_of(one), now), -one.ended, -one.id)
    )
