"""The modules of herma.web:

app          routes, server, the opened home
access       who may come in
pages        the pages
"""
