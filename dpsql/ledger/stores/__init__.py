"""The databases that hold a ledger, one file each."""
