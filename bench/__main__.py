"""All figures, one after the other."""

from bench import (
    big_outage,
    bill,
    cold_start,
    crashes,
    demand,
    growth_split,
    liveness,
    load,
    looks,
    many,
    outage,
    outages,
    overview,
    plan_growth,
    quiet_look,
    similar_sets,
    storms,
    workload_view,
)

for figure in (
    plan_growth,
    growth_split,
    demand,
    workload_view,
    similar_sets,
    looks,
    quiet_look,
    overview,
    many,
    outage,
    outages,
    storms,
    big_outage,
    liveness,
    crashes,
    cold_start,
    load,
    bill,
):
    figure.main()
