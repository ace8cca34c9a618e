"""`dpsql demo`: five questions to real data, each private answer beside the true one.

This package alone prints true answers. It may, because its data is public.
"""
