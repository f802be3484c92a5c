"""The modules of herma.doctor:

checks       every check, in order
database     examining herma.db and index.db
repair       plan and mend
"""
