"""Make src/herma/search/alike.tsv: English words that stand for each other, by the word vectors of e5-small.

    python scripts/alike_words.py e5-small.onnx.data vocab.txt > src/herma/search/alike.tsv

`herma models install e5-small --dry-run` names the packages that carry these two files.

Two words are alike where the cosine of their vectors in the model's table of words, less the mean of all, is at least
0.55 and their stems differ. Numbers, days and months are left out: another one is another answer.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from herma.models.install import e5_tensors
from herma.text import STOP_WORDS, stem

LEAST = 0.55
OTHER_ANSWERS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million millions
billion second third fourth fifth sixth seventh eighth ninth tenth dozen dozens january february march april may
june july august september october november december monday tuesday wednesday thursday friday saturday sunday
mondays tuesdays wednesdays thursdays fridays saturdays sundays
"""


def main(weights: Path, entries: Path) -> None:
    vocabulary = {word: number for number, word in enumerate(entries.read_text("utf-8").splitlines())}
    table = e5_tensors(weights.read_bytes())["embeddings.word_embeddings.weight"]
    letters = [word for word in vocabulary if re.fullmatch("[a-z]{3,}", word)]
    units = table - table[[vocabulary[word] for word in letters]].mean(axis=0)
    left_out = STOP_WORDS.union(OTHER_ANSWERS.split())
    words = [word for word in letters if word not in left_out]
    units = units[[vocabulary[word] for word in words]]
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    usual: dict[str, str] = {}  # the commonest word of each stem; the vocabulary begins with common words
    for word in words:
        usual.setdefault(stem(word), word)
    alike: dict[str, dict[str, float]] = defaultdict(dict)
    for place, word in enumerate(words):
        cosines = units @ units[place]
        for other in np.flatnonzero(cosines >= LEAST):
            one, two = stem(word), stem(words[other])
            if one != two:
                alike[one][usual[two]] = max(float(cosines[other]), alike[one].get(usual[two], 0.0))
    print("# stem\twords that stand for it, and how alike they are in hundredths; made by scripts/alike_words.py")
    for name, others in sorted(alike.items()):
        ranked = sorted(others.items(), key=lambda item: (-item[1], item[0]))
        print(name, ",".join(f"{word} {round(100 * likeness)}" for word, likeness in ranked), sep="\t")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
