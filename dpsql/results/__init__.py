"""What a query returns: results, receipts, explanations, budgets, synthetic and local tables, streams; as JSON and as charts."""

import dpsql.results.json_format  # noqa: F401  (so that answers can be pickled)
