"""How much of a node is asked for (simulator/utilization/info.go:44-134)."""

from fractions import Fraction

from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pods import GPU_LABELS, is_gpu
from evenkeel.domain.demand.requests import CPU, MEMORY

_USUAL_GPU = "nvidia.com/gpu"  # what Cluster Autoscaler takes a label to stand for


def utilization(room: NodeInfo) -> tuple[str, Fraction] | None:
    """The resource of which most is asked for, and its share; None: nobody says how much there is.

    Of a node with a GPU only that counts: it is what it costs. A GPU that is not there yet is not used. A node may say
    by a label alone that it has one.
    """
    gpu = next((name for name, amount in sorted(room.node.capacity.items()) if is_gpu(name) and amount), None)
    gpu = gpu or next((name for name, count in sorted(room.allocatable.items()) if is_gpu(name) and count), None)
    if gpu is None and not GPU_LABELS.isdisjoint(room.labels):
        gpu = _USUAL_GPU
    if gpu is not None:
        whole = room.allocatable.get(gpu, 0)
        return gpu, Fraction(whole - room.free.get(gpu, 0), whole) if whole else Fraction(0)
    shares = []
    for name, free in ((CPU, room.cpu), (MEMORY, room.memory)):
        whole = room.allocatable.get(name, 0)
        if not whole:
            return None
        shares.append((Fraction(whole - free, whole), name))
    share, name = max(shares)
    return name, share
