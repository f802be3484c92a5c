"""The `herma` program, also as `python -m herma`.

A hook starts in milliseconds: its command line is not read by the other commands' library.
"""

import sys
from importlib import import_module


def main() -> None:
    """Run the command line, or a hook."""
    if sys.argv[1:2] == ["hook"] and not {"--help", "--json", "--debug"} & set(sys.argv):
        sys.exit(import_module("herma.mcp.hook").main(sys.argv[2:]))
    import_module("herma.cli.main").main()


if __name__ == "__main__":
    main()
