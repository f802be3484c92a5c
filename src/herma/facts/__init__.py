"""The modules of herma.facts:

extract      statements in an entry (pure)
facts        Facts: follow memory, answer questions; rows
cli          herma memory facts
"""
