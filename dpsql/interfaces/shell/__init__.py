"""The shell: SQL and backslash commands in, private answers out.

`session.Session` turns one entry into text and knows nothing of a terminal; `prompt.run_interactive` is the
terminal around it, `prompt.run_piped` the pipe.
"""
