"""SELECT trees to plans: the whitelist. What it does not name is refused."""
