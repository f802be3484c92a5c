"""`herma doctor`.

checks       examine a home: every check, in order
repair       plan a repair and carry it out
"""
