"""How well memory does on labelled data: search, routing to skills, the scanner; and on the user's own history."""
