"""Figures: ratios and counts, each from one run. `make bench` prints them; no test asserts a time."""
