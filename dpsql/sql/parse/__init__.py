"""SQL text to one tree of the parser: limits, other dialects, the options clause."""
