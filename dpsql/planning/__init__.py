"""Which statistics are measured and with which noise: candidates, their predicted errors, the choice, its verification."""
