"""`dpsql serve`: an engine behind the PostgreSQL wire protocol, for analysts who hold neither data nor process.

`protocol` is the wire protocol as a state machine without sockets, `users` who may log in, `statements` and `settings`
what a client's session sends besides queries, `session` how one statement is answered, `service` what all sessions
share, `listener` the sockets.
"""
