"""A connection to `dpsql serve` over HTTP: the same questions and answers as in this process."""
