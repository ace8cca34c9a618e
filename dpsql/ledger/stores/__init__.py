"""Where a ledger is kept: one file a database."""
