"""How often 95% intervals hold the true answer, and how far answers are from it, over real tables and TPC-H."""
