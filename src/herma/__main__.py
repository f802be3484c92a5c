"""`python -m herma` is the same program as `herma`."""

from herma.cli.main import main

if __name__ == "__main__":
    main()
