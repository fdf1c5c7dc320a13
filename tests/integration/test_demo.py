"""`make demo` and `make demo-all`, as fast as the machine allows."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sandbox.demo import five_clusters, side_by_side
from sandbox.demo.stage import POOL, Act, Stage
from sandbox.template import ROOT

_DEMO = (sys.executable, "-m", "sandbox.demo")


def _default() -> None:
    """Restore the default: a test in the background ignores interrupts, and a program would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _played(demo: Callable[..., Stage], acts: Sequence[Act], minutes: float) -> tuple[Stage, str]:
    """Return the demo after its last act, and its output."""
    output = StringIO()
    with demo(Console(file=output, width=80), speed=1e9) as stage:
        assert stage.play(acts, minutes) == 0
    return stage, output.getvalue()


def test_with_evenkeel_pods_wait_shorter_and_the_pool_keeps_its_maximum() -> None:
    demo, output = _played(side_by_side.SideBySide, side_by_side.ACTS, side_by_side.MINUTES)
    without, evenkeel = demo.sides.values()
    assert 0 < evenkeel.pod_minutes < without.pod_minutes / 2
    assert without.most <= POOL.maximum
    assert evenkeel.most <= POOL.maximum
    patches = [request for request in evenkeel.cluster.api.requests if request.has_patched]
    assert len(patches) > 4
    assert {request.user for request in patches} == {"evenkeel"}
    assert not without.cluster.api.requests

    *captions, last = output.split("\n\n")
    assert all(act.headline.split()[0] in captions[number] for number, act in enumerate(side_by_side.ACTS))
    _, waited, nodes, patched, maximum, command = last.splitlines()
    assert [float(number) for number in re.findall(r"(\d+) pod-minutes", waited)] == [
        round(side.pod_minutes) for side in (without, evenkeel)
    ]
    assert re.findall(r"(\d+) \(", nodes) == [
        str(sum(view.running for view in side.cluster.groups())) for side in (without, evenkeel)
    ]
    assert patched.split() == ["patches", "none", "by", "Evenkeel", str(len(patches)), "by", "Evenkeel"]
    assert maximum.count("kept") == 2
    assert "evenkeel plan --context" in command
    assert re.fullmatch(r"[ -~\n]+", output)
    assert max(map(len, output.splitlines())) <= 80


def test_five_clusters_keep_their_maximum_and_run_their_pods() -> None:
    demo, output = _played(five_clusters.FiveClusters, five_clusters.ACTS, five_clusters.MINUTES)
    assert set(demo.sides) == {*five_clusters.KINDS, five_clusters.EKS}
    for name, side in demo.sides.items():
        assert side.pending() == 0, name
        assert POOL.minimum <= side.most <= POOL.maximum, name
        assert side.patches() > 0, name
    assert "evenkeel.dev/pool-max is 'many'" in output
    assert output.count("PoolMaximum kept") == len(five_clusters.KINDS) + 1


@pytest.mark.parametrize(
    ("lines", "how", "code"),
    [(0, "pipe", 0), (1, "pipe", 0), (3, "pipe", 0), (1, "interrupt", 130), (6, "interrupt", 130)],
)
def test_a_closed_pipe_or_an_interrupt_ends_it_silently(lines: int, how: str, code: int) -> None:
    with subprocess.Popen(_DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        assert all(demo.stdout.readline() for _ in range(lines))
        if how == "pipe":
            demo.stdout.close()
        else:
            demo.send_signal(signal.SIGINT)
        assert (demo.wait(60), demo.stderr.read()) == (code, b"")


def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        demo = subprocess.run(_DEMO, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    assert (demo.returncode, demo.stderr) == (1, b"the demo ends: No space left on device\n")


def test_make_ends_a_demo_that_missed_the_interrupt(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\ntrap '' INT\necho started\nexec sleep 60\n", encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = ("make", "--old-file=setup", "demo", f"BIN={tmp_path}")
    with subprocess.Popen(command, **pipes, cwd=ROOT, start_new_session=True, preexec_fn=_default) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == b"started\n"
        os.killpg(demo.pid, signal.SIGINT)
        output, error = demo.communicate(timeout=30)  # all processes have ended, because both pipes are closed
    assert demo.returncode in (2, -signal.SIGINT)
    assert (output, error.count(b"\n") <= 1) == (b"", True), error
