"""Words by which people and programs say how something went: English, Chinese, Japanese and Korean, some German.

Every list is matched against a short, folded text. A phrase in letters is matched as whole words; one in a script
without spaces is matched anywhere. They are few and plain on purpose: a wrong judgement is worse than none.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cached_property

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
