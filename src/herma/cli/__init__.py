"""The modules of herma.cli:

main         entry point, lazy groups, shared options
output       tables, progress, values in words
encode       values → JSON, for the command line and HTTP
settings     herma config, context, worker, serve
changes      herma remember, inbox, log, undo
maintenance  herma doctor, backup, db
tour         herma tour
context      what every command shares: context, options, groups, the person at the terminal
"""
