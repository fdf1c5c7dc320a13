"""Is demand met in the end, and PoolMaximum never passed? A simulation of one pool that knows no strategy."""
