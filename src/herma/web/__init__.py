"""The web face: pages for a person with a browser, and the same values as JSON for a program.

    server.py   a socket and what listens on it          house.py   the home that is looked at, opened once
    app.py      which address shows what                 pages/     one module a page: gather, show, tell as JSON
    gate.py     who is let in, before anything else      html.py    HTML in which text cannot become markup
    access.py   what the gate decides by; pure           files/     the style, the script, the mark

Only this folder knows the web framework; it is imported when `herma serve` is typed and not before.
"""
