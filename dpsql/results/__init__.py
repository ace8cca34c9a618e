"""What a query returns: results, receipts, explanations, budgets, synthetic and local tables, streams; as JSON and as charts."""
