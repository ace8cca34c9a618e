"""Write answers, budgets and errors as JSON in the HTTP API, and read them in a remote connection."""
