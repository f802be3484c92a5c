"""The modules of herma.safety:

scan         scan(text) → findings
rules        the rules and vocabularies as data
secrets      credentials: find and redact
"""
