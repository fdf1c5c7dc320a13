"""All figures, one after the other."""

from bench import cold_start, plan_growth, quiet_scan

for figure in (plan_growth, quiet_scan, cold_start):
    figure.main()
