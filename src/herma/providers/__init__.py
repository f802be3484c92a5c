"""The modules of herma.providers:

base         MemoryProvider: the interface that a plugin author implements
discovery    find and load providers; modules of Hermes Agent that its providers import
manager      providers in sessions: one that is written, others that recall; status
cli          herma providers
bundled/     the providers that come with Herma, one file each
"""
