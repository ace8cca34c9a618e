"""Count what a newcomer needs: `python -m benchmarks.newcomer` for commands, `--files` for files as other programs write them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.newcomer.commands import print_commands
from benchmarks.newcomer.judge import print_files


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the commands, or that of the files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.newcomer", description=__doc__)
    parser.add_argument(
        "--files", action="store_true", help="try twelve files as Excel, SAS, R and others write them"
    )
    print_files() if parser.parse_args(arguments).files else print_commands()


if __name__ == "__main__":
    main()
