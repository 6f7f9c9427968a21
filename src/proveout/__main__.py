"""`python -m proveout`: the same as the `proveout` command."""

from proveout.cli import main

if __name__ == "__main__":
    main()
