"""All figures, one after the other."""

from bench import cold_start, crashes, outage, plan_growth, quiet_scan

for figure in (plan_growth, quiet_scan, outage, crashes, cold_start):
    figure.main()
