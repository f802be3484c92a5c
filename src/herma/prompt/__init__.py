"""L0: what the model sees. Pure: gets text as values, reads no file and no clock.

In the order a turn meets them:

    tiers      the system prompt, assembled once (guidance: our own texts; context: project files; snapshot: memory)
    budget     how the window is divided, and what overflowed
    tokens     how many tokens a text takes (families: per model; weight: per message)
    fence      recalled text on its way in, and `sanitize` for what comes back (tags: the grammar)
    scrub      the same for a streamed reply
    results    tool results made shorter (kinds, shapes)
    ledger     what a provider's cache could reuse, and why not more
"""
