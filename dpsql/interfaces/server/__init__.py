"""`dpsql serve`: an engine behind the PostgreSQL wire protocol and HTTP, for analysts without access to the data.

`protocol` is the wire protocol as a state machine without sockets; `users` stores users and tokens; `statements`, `settings` and
`utilities` handle everything but queries; `session` answers one statement; `service` holds the state that all sessions share;
`listener` has the sockets.
"""
