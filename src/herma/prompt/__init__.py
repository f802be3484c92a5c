"""The modules of herma.prompt:

assemble     the system prompt: tiers, memory snapshot, project files, guidance
fence        wrap, strip and stream-scrub recalled text
tokens       token counting: estimate, exact, per message; model windows
budget       how the window is divided, and what fills it
tool_results long tool results, shortened by kind
ledger       what each call could reuse and cost; rows, report
"""
