"""The modules of herma.index:

sync         the text index follows the change feed; rebuild, verify
file         index.db: files, tables, checks
postings     shards and weighted posting lists; find
vectors      embed what is new; keep, verify, drop
nearest      nearest neighbours over 8-bit vectors (numpy); faiss above a size
cli          herma index …
types        values that postings, sync, vectors and search share
"""
