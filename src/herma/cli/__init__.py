"""The command line: `main` is the entry point, `frame` what commands are built on, `output` how they print."""
