"""Letters of other scripts that readers take for Latin ones."""

from __future__ import annotations

import re

# Pairs of (foreign letters, the Latin letters they resemble), position by position. Lower case unless the capital
# resembles a different letter than its own lower case does.
_PAIRS = (
    # Cyrillic, with three Armenian and rarer letters that read the same way
    ("авекмнорстухіјѕԁԛԝһґԍѵьзпгцчєӏүћъҽոռҏԉ", "abekmhopctyxijsdqwhrgvb3nruuelyhbenupl"),
    ("АВЕКМНОРСТУХІЈЅԀԚԜҺЅѴЬЗ", "abekmhopctyxijsdqwhsvb3"),
    # Greek
    ("αβγεζηικνορτυχωϲϳ", "abyezniknopruxwcj"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "abezhikmnoptyx"),
    # Armenian
    ("աեհոսցօզյքև", "wehnugoqjpl"),
    # Cherokee capitals
    ("ᎪᎬᎡᎢᎥᎩᎷᎻᎠᎳᎿᏚᏙᏟᏢᏦᏎᏴᏒᏔᏃ", "aertiymhdwhsvcpk4brwz"),
    # Latin letters outside ASCII that no decomposition reduces, as often used to dodge filters
    ("ıȷɑɡɩɪʟɴʀɢʙʜᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢꜱꞮøđħłŧƒɓɗɦɩɨʋƅ", "ijagiilnrgbhacdejkmoptuvwzsiodhltfbdhiivb"),
)


def _build() -> dict[str, str]:
    table: dict[str, str] = {}
    for foreign, latin in _PAIRS:
        table.update(zip(foreign, latin, strict=True))
    return table


LOOKALIKES = _build()
RESEMBLING = re.compile(f"[{''.join(LOOKALIKES)}]")
