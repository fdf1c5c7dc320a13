"""The setting ``fallback_for``: the pools of which a pool is a fallback. A setting without effect is a warning."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.parts import Setting
from evenkeel.domain.model.pools import AnyPool, InvalidPool, is_called
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.values import read_pool_name

# The name or id of the pool of which a pool is a fallback; empty: it is none.
FALLBACK_FOR = Setting(name="fallback_for", read=read_pool_name, default="")


def with_first_pools(pools: list[AnyPool]) -> list[AnyPool]:
    """Return the pools with their ``first_pools``, and with a warning for each setting that has no effect."""
    names = {pool.id: name for pool in pools if (name := FALLBACK_FOR.of(pool.settings.own))}
    if not names:
        return pools
    found = {pool.id: _first_of(pool, names[pool.id], pools) for pool in pools if pool.id in names}
    links = {id: first for id, first in found.items() if isinstance(first, PoolId)}
    problems = {id: first for id, first in found.items() if isinstance(first, Problem)}
    for id in sorted(links):
        if id in links and (ring := _ring(id, links)):
            problems[id] = Problem.of(ProblemKind.FALLBACK_RING, pools=tuple(each.name for each in ring))
            links = {each: first for each, first in links.items() if each not in ring}
    linked = []
    for pool in pools:
        if pool.id in problems:
            pool = replace(pool, warnings=(*pool.warnings, problems[pool.id]))
        linked.append(replace(pool, first_pools=_chain(pool.id, links)) if pool.id in links else pool)
    return linked


def _first_of(pool: AnyPool, name: str, pools: Sequence[AnyPool]) -> PoolId | Problem:
    """Return the pool of which a pool is a fallback, or why it is the fallback of no pool."""
    named = [other for other in pools if is_called(other.id, [name])]
    first = next((other for other in named if other.id[:-1] == pool.id[:-1]), None)
    if first is None and named:
        return Problem.of(ProblemKind.FALLBACK_ELSEWHERE, name=name, pool=str(named[0].id))
    if first is None:
        return Problem.of(ProblemKind.FALLBACK_UNKNOWN, name=name)
    return Problem.of(ProblemKind.FALLBACK_INVALID, name=name) if isinstance(first, InvalidPool) else first.id


def _chain(id: PoolId, links: Mapping[PoolId, PoolId]) -> tuple[PoolId, ...]:
    """Return the pools that follow a pool in the links, up to the first repetition."""
    chain: list[PoolId] = []
    while id in links and links[id] not in chain:
        id = links[id]
        chain.append(id)
    return tuple(chain)


def _ring(id: PoolId, links: Mapping[PoolId, PoolId]) -> tuple[PoolId, ...]:
    """Return the pools of the ring that contains a pool; empty: it is in no ring."""
    chain = _chain(id, links)
    return (id, *chain[: chain.index(id)]) if id in chain else ()
