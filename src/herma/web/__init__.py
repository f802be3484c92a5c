"""The web face: pages for a person with a browser, and the same values as JSON for a program.

    server.py   a socket and what listens on it          house.py   the home that is looked at, opened once
    gate.py     who is let in, before anything else      pages/     one module a page: gather, show, tell as JSON
    access.py   what the gate decides by; pure           html.py    HTML in which text cannot become markup
    token.py    the home's key                           frame.py   what every page has around it
    app.py      which address shows what                 chart.py   bars, as a picture
    answers.py  a page, JSON, or what is wrong           files/     the style, the script, the mark
    threads.py  work that may take long

Only this folder knows the web framework; it is imported when `herma serve` is typed and not before.
"""
