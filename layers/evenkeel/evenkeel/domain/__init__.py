"""The rules: pure functions over plain values. No I/O, no clock, no randomness."""
