"""Lower SELECT trees to plans: a whitelist, which refuses every other node."""
