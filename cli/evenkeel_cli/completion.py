"""Completion of values for a shell. Clusters, pools and zones are those of the stack; a stack that fails has none."""

import os
from collections.abc import Iterable
from itertools import chain
from typing import Any

import typer

_STRATEGIES = ("Lax-Greedy", "Backward-Compatible", "Adaptive", "Balanced")
# The choices of `simulate --strategy`, which a test compares with those of the simulation.
CHOICES = ("own", "all", *_STRATEGIES, "static", "loose", "no-autoscaler", "serverless")


def clusters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the stack's clusters that begin like this."""
    answer = _status(ctx, "*")
    listed = [cluster["cluster"] for cluster in answer.get("clusters", ())]
    return _starting(incomplete, [*listed, *chain.from_iterable(answer.get("others", {}).values())])


def pools(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the cluster's pools that begin like this."""
    return _starting(incomplete, (pool["name"] for pool in _status_of_one(ctx).get("pools", ())))


def zones(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the zones of the cluster's node groups that begin like this."""
    groups = (group for pool in _status_of_one(ctx).get("pools", ()) for group in pool["groups"])
    return _starting(incomplete, (group["zone"] for group in groups))


def strategies(incomplete: str) -> list[str]:
    """Return the strategies of a simulation that begin like this."""
    return _starting(incomplete, CHOICES)


def _starting(incomplete: str, names: Iterable[object]) -> list[str]:
    return sorted({name for name in names if isinstance(name, str) and name.startswith(incomplete)})


def _status_of_one(ctx: typer.Context) -> dict[str, Any]:
    cluster = ctx.params.get("cluster")
    return _status(ctx, cluster) if cluster not in (None, "*") else {}


def _status(ctx: typer.Context, cluster: str) -> dict[str, Any]:
    """Return the stack's status; empty if the stack does not answer in time."""
    stack = ctx.params.get("stack") or os.environ.get("EVENKEEL_STACK")
    if not stack:
        return {}
    try:
        from evenkeel_cli.stack_client import ask_quickly

        return ask_quickly(stack, {"action": "status", "cluster": cluster})
    except Exception:  # a shell prints what completion prints: nothing is better than any error
        return {}
