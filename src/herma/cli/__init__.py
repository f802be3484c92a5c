"""The modules of herma.cli:

main         entry point, lazy groups, shared options
output       tables, progress, values → lines and JSON (one encoder for CLI and dashboard)
settings     herma config, context, providers
maintenance  herma doctor, backup, serve
tour         herma tour
frame        what every command shares: context, options, groups, the person at the terminal
"""
