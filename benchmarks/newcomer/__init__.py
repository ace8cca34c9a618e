"""A newcomer: the commands that lead to a first answer, and files as other programs write them."""
