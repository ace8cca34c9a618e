"""What a ledger says, for its owner: summed up, and as a page."""
