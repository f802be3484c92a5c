"""Settings → parts: one module per part, each a function that puts adapters under a keeper. `app` calls them when a
part is first used, so that no command loads what it does not need."""
