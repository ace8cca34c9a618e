"""A connection to a server over HTTP."""
