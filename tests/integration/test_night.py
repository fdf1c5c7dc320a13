"""docs/operate/night.md is made by walking the night: forty clusters, the real commands, and the screens after each."""

from evenkeel.domain.model.incidents import IncidentKind, Severity
from sandbox.template import ROOT
from tests.night import COLUMNS, STACK, Night, pages, walk

_KINDS, _SEVERITIES = list(IncidentKind), list(Severity)
_OF_AUTO_SCALING = {IncidentKind.LOST_GROUP, IncidentKind.BOUNDS_UNREAD}  # the night has no Auto Scaling groups


def test_the_night_is_as_the_docs_show_it() -> None:
    night = Night()
    reported = night.status()
    assert reported["counts"]["clusters"] == len(night.members) == 40
    is_failing = [cluster for cluster in reported["clusters"] if cluster["state"] == "incident"]
    kinds = [IncidentKind(cluster["incidents"][0]["kind"]) for cluster in is_failing]
    assert set(kinds) == set(IncidentKind) - _OF_AUTO_SCALING
    folded = [cluster.get("folded", False) for cluster in is_failing]
    assert folded == sorted(folded), "what no cause reports comes first"
    rest = kinds[: folded.index(True)]
    assert rest == sorted(rest, key=lambda kind: (_SEVERITIES.index(kind.severity), _KINDS.index(kind)))
    assert {cause["title"] for cause in reported["causes"]} >= {"unreachable"}
    assert kinds.count(IncidentKind.UNREACHABLE) == 3
    before = {cluster["cluster"] for cluster in is_failing}
    for cluster in is_failing:  # is said to be well nowhere else
        explained = night.ask(STACK, {"action": "explain", "cluster": cluster["cluster"]})
        known = {incident["kind"] for incident in explained["incidents"]}
        assert known >= {incident["kind"] for incident in cluster["incidents"]}
        assert "NAME" not in explained["message"], "a command can be typed as it is reported"

    screens = list(walk(night))
    for name, text in pages(screens).items():
        assert text == (ROOT / "docs" / name).read_text(encoding="utf-8"), f"{name}: python -m tests.night writes it"
    for _, screen in screens:
        _, _, table = screen.partition("status --stack evenkeel\n")
        rows = [line for line in table.partition("\n$")[0].splitlines() if line.startswith(tuple(night.members))]
        assert all(len(line) <= COLUMNS for line in rows)

    after = {cluster["cluster"] for cluster in night.status()["clusters"]}
    assert before - after == {"shop-3", "pay-4", "web-5", "data-2"}, "what the zone had to do with"
