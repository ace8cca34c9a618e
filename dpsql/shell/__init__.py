"""The shell: SQL and backslash commands in, private answers out.

`Session` turns one entry into text and knows nothing of a terminal; `prompt` is the terminal around it.
"""

from dpsql.shell.session import Session
from dpsql.shell.state import Reply, State
from dpsql.shell.view import View

__all__ = ["Reply", "Session", "State", "View"]
