"""The release of a query: exact rows, noise, and what is released of both.

`exact_rows` opens them, `noisy_groups` adds the noise to groups, `draw_release` draws a release of each kind. Everything
after them is post-processing of released values.
"""
