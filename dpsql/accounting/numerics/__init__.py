"""Bounds of functions of real numbers that are certain: exp, ln, and the normal law."""
