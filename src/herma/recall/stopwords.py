"""Words that carry no content in a question. They are dropped from queries, never from the index: phrases need them.

Our own lists, kept short for languages whose function words are content words elsewhere ("die", "son", "come").
"""

from __future__ import annotations

_ENGLISH = """
a about above after again ago all also am an and any anybody anyone anything anyway are aren't around as at away back
be because been before being below between both but by came can can't cannot come could couldn't did didn't do does
doesn't doing don't done down during each either else ever every everything few find for from further get gets getting
give given go goes going gone gonna got had hadn't has hasn't have haven't having he he'd he'll he's hello help her
here here's hers herself hey hi him himself his how how's however i i'd i'll i'm i've if in into is isn't it it'd
it'll it's its itself just kind know last later let let's like likely ll look lot make many may maybe me mean might
mine more most much must my myself need needed never no nor not now of off oh ok okay on once one only onto or other
our ours ourselves out over own per please pls put quite rather re really recall remember remind s said same say says
see shall she she'd she'll she's should shouldn't show since so some somebody someone something sort such sure t take
tell than thank thanks that that's thats the their theirs them themselves then there there's these they they'd they'll
they're they've thing things think this those though through to together told too toward towards under until up upon
us use used using ve very want wanted wants was wasn't way we we'd we'll we're we've well went were weren't what
what'd what're what's whats when when's where where's whether which while who who'd who's whom whose why why's will
with within without won't would would've wouldn't yeah yes yet you you'd you'll you're you've your yours yourself
"""
_GERMAN = """
aber als auch auf aus bei bin bist da damit dann das dass dein deine dem den denn der des dich dir doch du durch ein
eine einem einen einer eines er es euch euer für gab gegen gibt habe haben hat hatte hatten ich ihm ihn ihr ihre im
ist ja jede jeder jetzt kann kannst kein keine können könnte machen mal mein meine mich mir mit nach nein nicht noch
nur ob oder ohne sehr sein seine sich sie sind so soll sollte und uns unser unter vom von vor wann warum was weil
welche welchen welcher welches wenn wer werden weshalb wie wieder wieso wir wird wirst wo wohin worüber wurde wurden
zu zum zur zwischen über
"""
_FRENCH = """
ai as au aux avais avait avec avez avons c'est ce ces cet cette comment dans de des du elle elles en est est-ce et eu
il ils je j'ai la le les leur lequel laquelle lui ma mais me mes moi mon ne nos notre nous on ont ou où par pas pour
pourquoi quand que quel quelle quelles quels qu'est-ce qui quoi sa sans se ses si sont sur ta te tes toi ton tu un une
vos votre vous à été être
"""
_SPANISH = """
al algo como con cuando cuándo cuál cuáles cómo de del dónde el ella ellas ellos en era es esa ese eso esta este esto
está están fue ha hay he la las le les lo los me mi mis muy más no nos nosotros para pero por porque que quién quiénes
qué se ser si sin sobre son su sus sí también te tiene tu tus un una unas uno unos y ya yo él
"""

_CONTENT_ELSEWHERE = {"den", "era", "hat", "pour", "son", "ton"}
STOP_WORDS = frozenset(f"{_ENGLISH} {_GERMAN} {_FRENCH} {_SPANISH}".split()) - _CONTENT_ELSEWHERE
"""Without the words of one language that are content in another: a word too many does less harm than one too few."""

NOT_ENGLISH = STOP_WORDS - frozenset(_ENGLISH.split()) - {"die", "es", "en", "la", "no", "me", "de", "son"}
"""Words that nobody uses in an English question."""

NAMES = frozenset(("Go", "May", "Will", "Mark", "Back"))
"""Capitalised inside a sentence these are names, although `go`, `may` and `will` say nothing."""

_CHINESE = """
请问 請問 什么 什麼 甚麼 是什么 是什麼 为什么 為什麼 怎么 怎麼 怎么样 怎麼樣 怎样 怎樣 哪个 哪個 哪些 哪里 哪裡
哪一 多少 是不是 有没有 有沒有 是否 如何 何时 何時 吗 嗎 呢 吧 啊 告诉我 告訴我 关于 關於
"""
_JAPANESE = """
ですか ますか でしょうか でしたか ましたか 何ですか とは何 どのような どのように どんな どこ いつ
について 教えて ください という
"""
_KOREAN = "무엇 입니까 인가요 인가 무슨 어떤 어떻게 언제 어디 누가 누구 얼마나 알려줘"
CJK_FILLERS = tuple(sorted(f"{_CHINESE} {_JAPANESE} {_KOREAN}".split(), key=len, reverse=True))
"""Pieces cut out of runs of Chinese, Japanese and Korean, longest first. Single particles (的, は) stay: they glue
words whose borders nobody marks."""
