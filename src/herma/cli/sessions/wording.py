"""How sessions are put into words and into JSON: what the commands take from where the web takes it too."""

from herma.wording.sessions import (
    Json,
    count,
    iso,
    marked_name,
    message_json,
    name_of,
    one_line,
    session_json,
    short_when,
    size,
    when,
)

__all__ = [
    "Json",
    "count",
    "iso",
    "marked_name",
    "message_json",
    "name_of",
    "one_line",
    "session_json",
    "short_when",
    "size",
    "when",
]
