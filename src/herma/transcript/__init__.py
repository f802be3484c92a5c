"""L2: every message of every session. The only writer of both; lineage, titles, export."""

from herma.transcript.log import Transcripts

__all__ = ["Transcripts"]
