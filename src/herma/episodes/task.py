"""What a conversation was about: its first substantial request, cleaned, and the kind of work. Pure and linear."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from herma.episodes.phrases import SMALL_TALK, THANKS, TROUBLE, Phrases, folded
from herma.episodes.steps import Step, is_writing, text_of
from herma.prompt.fence import sanitize
from herma.types import Message

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
