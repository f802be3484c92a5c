"""The modules of herma.transcript:

messages     Message ↔ wire format, replay, validation of what callers give
log          Transcripts: start, append, end, hide, delete, list; lineage, titles, retention
rows         sessions, messages, payloads, change feed in herma.db
transfer     export and import (exact)
provenance   where the text of messages came from
cli          herma sessions
cli_search   herma search
"""
