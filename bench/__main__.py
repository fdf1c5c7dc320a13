"""All figures, one after the other."""

from bench import big_outage, cold_start, crashes, looks, outage, outages, plan_growth, quiet_scan, similar_sets, storms

for figure in (plan_growth, similar_sets, looks, quiet_scan, outage, outages, storms, big_outage, crashes, cold_start):
    figure.main()
