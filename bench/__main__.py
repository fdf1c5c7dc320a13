"""All figures, one after the other."""

from bench import cold_start, crashes, liveness, looks, outage, plan_growth, quiet_scan, similar_sets

for figure in (plan_growth, similar_sets, looks, quiet_scan, outage, liveness, crashes, cold_start):
    figure.main()
