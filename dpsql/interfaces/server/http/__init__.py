"""The HTTP API of `dpsql serve`: queries, prices and budgets as JSON or Arrow.

`door` has the sockets, `api` passes each request to its handler, `access` authenticates callers, `requests` reads bodies, which
`bodies` models. `openapi` has the table of routes and their description; `queries` and `resources` have the handlers.
Starlette and uvicorn belong to the extra `server`, and are imported only here.
"""
