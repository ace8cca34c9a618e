"""Publishing: named queries of a file, asked within one budget, written as tables, receipts, charts and a note on methods."""
