"""Episodes: what earlier conversations were about, how they ended, and where the work stands.

build      messages → episode and state of the work (pure)
episodes   Episodes: record, find, archive, show; the session feature; restore(task)
rows       the values, their tables, and bounded reading of transcripts
cli        herma episodes, herma brief
"""
