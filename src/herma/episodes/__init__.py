"""The modules of herma.episodes:

build        messages → Episode and state (pure)
outcome      how it ended, and why that is thought (pure)
episodes     Episodes: record, find, forget, show; the session observer; restore(task)
rows         their tables, and bounded reading of transcripts
cli          herma episodes, herma restore
types        values that build, outcome, rows and episodes share
"""
