"""The modules of herma.safety:

scan         scan(text) → findings; the rules are in rules.txt
secrets      find credentials; their formats are in secrets.txt
fold         plain letters for comparison; text without machine noise
"""
