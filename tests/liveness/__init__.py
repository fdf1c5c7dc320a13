"""Is demand finally met, and PoolMaximum never passed? A simulation of one pool, independent of strategies."""
