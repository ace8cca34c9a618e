"""`dpsql demo`: five queries on real data, each private answer beside the true one.

Only this package prints true answers, which it may because its data is public.
"""
