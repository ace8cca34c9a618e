"""The HTTP API of `dpsql serve`: queries, prices and budgets as JSON or Arrow.

`listener` has the sockets, `api` the table of routes and the way of each request, `access` authenticates callers, `messages` reads
requests and writes responses, `bodies` models their bodies, and `handlers` answers each route. Starlette and uvicorn belong to
the extra `server`, and are imported only here.
"""
