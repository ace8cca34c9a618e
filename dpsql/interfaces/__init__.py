"""Who asks: the command line, the shell, the server, notebooks, SQLAlchemy, and what is built on a connection."""
