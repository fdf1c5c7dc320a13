"""Benches: every measured figure of docs/. `python -m bench [NAME…]` runs them; each yields rows (bench.rows)."""
