"""All figures, one after the other."""

from bench import (
    big_outage,
    cold_start,
    crashes,
    growth_split,
    liveness,
    looks,
    outage,
    outages,
    plan_growth,
    quiet_look,
    quiet_scan,
    similar_sets,
    storms,
)

for figure in (
    plan_growth,
    growth_split,
    similar_sets,
    looks,
    quiet_look,
    quiet_scan,
    outage,
    outages,
    storms,
    big_outage,
    liveness,
    crashes,
    cold_start,
):
    figure.main()
