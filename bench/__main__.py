"""All figures, one after the other."""

from bench import cold_start, outage, plan_growth, quiet_scan

for figure in (plan_growth, quiet_scan, outage, cold_start):
    figure.main()
