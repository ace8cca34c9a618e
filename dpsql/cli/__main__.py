"""`python -m dpsql.cli` is `dpsql`."""

from dpsql.cli import main

main()
