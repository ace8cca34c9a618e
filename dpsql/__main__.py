"""`python -m dpsql` is `dpsql`."""

from dpsql.interfaces.cli import main

main()
