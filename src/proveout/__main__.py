"""The `proveout` command, also as `python -m proveout`.

The command line is imported inside, so that a Ctrl-C in the first tenths of a second is an interrupt and not a
traceback.
"""

import sys

from proveout import collect_less_garbage, forget_working_directory, restrain_libraries

INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code."""
    forget_working_directory()  # an empty entry of PYTHONPATH means it, too
    collect_less_garbage()
    restrain_libraries()
    try:
        from proveout.cli import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
