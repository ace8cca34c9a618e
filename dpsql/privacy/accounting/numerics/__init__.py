"""Rigorous bounds of real functions: exp, ln and the normal law."""
