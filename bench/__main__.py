"""Run benches: ``python -m bench [NAME…] [--OPTION VALUE…]``. Without names, all of them run.

``python -m bench --list`` names them; ``python -m bench NAME --help`` explains one and its options. Garbage is
collected as in the deployed functions.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import evenkeel.bootstrap  # noqa: F401  it sets the thresholds of garbage collection
from bench import (
    auto_scaling,
    auto_scaling_outage,
    bill,
    forecast,
    oracle,
    pages,
    planning,
    provision_times,
    rows,
    simulated,
    stack,
    stored,
    workload_view,
    worlds,
)

BENCHES: dict[str, Callable[..., rows.Rows]] = {
    bench.__name__: bench
    for bench in (
        planning.plan_growth,
        planning.growth_split,
        planning.demand,
        forecast.forecast,
        provision_times.provision_times,
        worlds.ineffective_orders,
        simulated.peak_and_valley,
        simulated.recovery,
        simulated.shrink,
        workload_view.workload_view,
        stack.quiet_check,
        auto_scaling.auto_scaling_check,
        auto_scaling.auto_scaling_accounts,
        auto_scaling.auto_scaling_failure,
        auto_scaling_outage.auto_scaling_outage,
        stored.status_of_all,
        pages.pages,
        stored.readiness_of_all,
        stored.actions_on_all,
        stack.failure_to_patch,
        stack.pods_to_machines,
        worlds.outages,
        worlds.storms,
        worlds.big_outage,
        worlds.liveness,
        worlds.demand_crashes,
        worlds.convergence_crashes,
        oracle.oracle,
        stack.cold_start,
        stack.load,
        bill.bill,
    )
}


def options_of(bench: Callable[..., rows.Rows], arguments: Sequence[str]) -> dict[str, Any]:
    """Return a bench's arguments as its command line gives them: an option for each parameter."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {bench.__name__}", description=bench.__doc__)
    for name, parameter in inspect.signature(bench).parameters.items():
        option, default = f"--{name.replace('_', '-')}", parameter.default
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(option, type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(option, type=type(default), default=default)
    return vars(parser.parse_args(arguments))


def main(arguments: Sequence[str]) -> None:
    """Run the named benches, print their tables and keep their figures."""
    if arguments == ["--list"]:
        for name, bench in BENCHES.items():
            print(f"{name}: {(bench.__doc__ or '').splitlines()[0].rstrip('.')}")
        return
    names = [argument for argument in arguments if argument in BENCHES] or list(BENCHES)
    options = [argument for argument in arguments if argument not in BENCHES]
    if options and len(names) != 1:
        raise SystemExit(f"{options[0]}: name one bench before its options; --list prints all names")
    for name in names:
        chosen = options_of(BENCHES[name], options)
        print(f"\n## {name}")
        rows.keep(rows.print_rows(BENCHES[name](**chosen)))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # benches provoke failures, and the product logs each of them
    main(sys.argv[1:])
