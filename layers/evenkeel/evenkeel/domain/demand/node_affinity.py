"""Node selectors and required node affinity (plugin nodeaffinity)."""

from collections.abc import Mapping

from evenkeel.domain.demand.selectors import any_term_matches
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Needs


def failing_filter(needs: Needs, labels: Mapping[str, str], name: str) -> Reason | None:
    """The first label of the node selector that is another, or that no required term matches."""
    for key, wanted in sorted(needs.node_selector.items()):
        if (found := labels.get(key)) != wanted:
            return Reason.of(Rule.NODE_SELECTOR, key=key, wanted=wanted, found="missing" if found is None else found)
    if needs.node_terms is not None and not any_term_matches(needs.node_terms, labels, name):
        keys = {item.key for term in needs.node_terms for item in (*term.expressions, *term.fields)}
        return Reason.of(Rule.NODE_AFFINITY, terms=len(needs.node_terms), keys=tuple(sorted(keys)))
    return None
