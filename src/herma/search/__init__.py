"""The modules of herma.search:

query        any text → Query: operators, filters, brackets; and back in words
dates        dates in plain language
match        query terms in text: places, snippets, excerpts
candidates   candidates from index and transcript; filters; widening
rank         scores: words, meaning, date, speaker; one hit per conversation
contradictions  later statements before the ones they contradict
search       Searcher.search() → SearchReport
expand       query expansion and summaries by a model
prefetch     what this turn needs, within a deadline
"""
