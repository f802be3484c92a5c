"""The modules of herma.compression:

engine       when and how: prune, choose, summarise, check; the ContextEngine interface
summary      the summary: format, extraction, fidelity gate, vetting, expansion
"""
