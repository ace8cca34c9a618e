"""The version of dpsql, which receipts and the entries of ledgers state."""

VERSION = "0.3.0.dev0"
