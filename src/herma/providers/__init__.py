"""The modules of herma.providers:

base         MemoryProvider: what a plugin author implements
manager      discovery; one provider per session; events
guard        deadline, circuit breaker, failure log
"""
