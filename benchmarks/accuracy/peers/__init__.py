"""Each peer's way of asking: a module that runs in the peer's own environment, over the tables that it is told of."""
