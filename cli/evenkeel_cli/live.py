"""Read a cluster with the caller's own kubeconfig, which may use exec plug-ins and refer to files."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, list_kube_config_contexts, load_kube_config
from kubernetes.config.kube_config import ENV_KUBECONFIG_PATH_SEPARATOR, KUBE_CONFIG_DEFAULT_LOCATION, KubeConfigMerger

from evenkeel.access_config import SameAccess, WorkloadEntry
from evenkeel.adapters.documents import UnreadableError, read_document
from evenkeel.adapters.kubernetes.access.kubeconfig import IMPERSONATION
from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.adapters.kubernetes.objects import NODE, Object
from evenkeel.adapters.kubernetes.owners.worker import SHOOT
from evenkeel.adapters.kubernetes.read.lister import ObjectLister
from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload
from evenkeel.application.errors import AccessError, ClusterUnavailableError
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.observe import lacks_pods, read_cluster, with_workload
from evenkeel.application.rebalancing.see_pods import SeePods
from evenkeel.bootstrap import SystemClock
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.inputs import read_text, refuse_empty
from evenkeel_cli.terminal import say

_PATIENCE_SECONDS = 120.0
# The lists in a kubeconfig, each with the name of the field in which an entry has its content.
_ENTRIES = (("contexts", "context"), ("users", "user"))


def observe(
    policy: ClusterFile,
    state: ClusterState,
    kubeconfig: str | None,
    context: str | None,
    workload_context: str | None = None,
) -> tuple[Observation, SeePods]:
    """Return an observation, and a function that adds pods to an observation without pods.

    The function adds pods only if the record enables ``demand`` or has a ``workload``. ``workload_context`` names the
    API with the pods; None: the machine objects' own API, if the record's workload is there.

    Raises:
        ConfigError: the kubeconfig cannot be used.
        AccessError, ClusterUnavailableError: the cluster cannot be read.
    """
    api, remaining = opened(kubeconfig, context)
    stage, cluster = policy.demand_stage, KubernetesCluster(api, policy, remaining)
    observation = read_cluster(api.name, cluster, state)
    if stage is DemandStage.OFF and policy.workload is None:
        return observation, lambda observed: observed
    entry = read_model(WorkloadEntry, policy.workload or {"access": {"kind": "same"}}, "record: workload")

    def open_workload() -> KubernetesWorkload:
        if workload_context is not None:
            own, own_remaining = opened(kubeconfig, workload_context)
            return KubernetesWorkload(own, entry, own_remaining, flavours=policy.flavours)
        if not isinstance(entry.access, SameAccess):
            raise AccessError("the record's workload is not the API that the kubeconfig leads to: let the stack plan")
        return KubernetesWorkload(api, entry, remaining, flavours=policy.flavours)

    def see(observed: Observation, *, judges_nodes: bool = True) -> Observation:
        return with_workload(api.name, open_workload, cluster, observed, judges_nodes=judges_nodes)

    if stage is not DemandStage.OFF:
        observation = see(observation, judges_nodes=stage.judges_nodes)
    return observation, lambda observed: see(observed) if lacks_pods(observed) else observed


def list_objects(
    kubeconfig: str | None, context: str | None, group: str, plural: str, selector: str | None
) -> Sequence[Object]:
    """Return all objects of a kind that match a label selector. Raises the errors of ``observe``.

    The function uses the first version of the API group that serves the kind. The server lists its preferred version
    first.
    """
    api, remaining = opened(kubeconfig, named_context(kubeconfig, context))
    for version in api.served(group, remaining):
        if (received := api.list_all(f"/apis/{group}/{version}/{plural}", remaining, selector)) is not None:
            return received.objects()
    raise ClusterUnavailableError(f"{api.name} does not serve {plural} of {group}")


def clues(kubeconfig: str | None, context: str | None) -> Sequence[Object]:
    """Return the Shoots and nodes of an API server, that the caller may list. Raises as ``observe``."""
    api, remaining = opened(kubeconfig, context)
    lister = ObjectLister(api, (), remaining, None)
    return [item for kind in (SHOOT, NODE) for item in lister.list_if_allowed(kind) or ()]


def opened(kubeconfig: str | None, context: str | None) -> tuple[KubernetesApi, Remaining]:
    """Return a kubeconfig's API, and a function that returns the remaining seconds. Raises ConfigError."""
    where, clock = kubeconfig or "kubeconfig", SystemClock()
    client = _client(kubeconfig, context, where)
    deadline = clock.now().timestamp() + _PATIENCE_SECONDS
    return KubernetesApi(context or where, client, None, clock), lambda: deadline - clock.now().timestamp()


def _refuse_unreadable(path: str) -> None:
    """Raise ConfigError for a file that is not YAML. Duplicate keys are allowed, as in kubectl, which uses the last."""
    try:
        read_document(read_text(path))
    except UnreadableError as error:
        raise ConfigError([f"{path}: {error}"]) from None


def _refuse_impersonation(config: Mapping[str, Any], context: str | None) -> None:
    """Raise ConfigException for a user with impersonation.

    The library ignores impersonation. It would act as a different user than kubectl does.
    """
    contexts, users = (_by_name(config[plural], singular) for plural, singular in _ENTRIES)
    user = users.get(contexts[context or config["current-context"]].get("user"), {})
    for field in IMPERSONATION:
        if user.get(field):
            raise ConfigException(
                f"user.{field} is refused: Evenkeel impersonates no other user: "
                "read the objects with kubectl, and plan with -f"
            )


def _by_name(nodes: Iterable[Any], singular: str) -> dict[Any, Mapping[str, Any]]:
    return {node.value["name"]: node.value.get(singular) or {} for node in nodes}


class _Refusal(logging.Handler):
    """Raises AccessError for each logged record."""

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())[:300]
        raise AccessError(f"the credential plugin of the kubeconfig's user fails: {text}")


@contextmanager
def _plugin_errors_raised() -> Iterator[None]:
    """Raise AccessError for a credential plugin that fails. The library would log this, and go on without a token."""
    handler = _Refusal(logging.ERROR)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _client(kubeconfig: str | None, context: str | None, where: str) -> RESTClientObject:
    # load_kube_config reads the same files. They are checked before, because load_kube_config expands YAML aliases
    # without limit and quotes file contents in errors.
    if kubeconfig is not None:
        refuse_empty(kubeconfig)
    names = (kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION).split(ENV_KUBECONFIG_PATH_SEPARATOR)
    # os.path, as in load_kube_config: pathlib raises for a missing home and for an unreadable folder.
    files = [path for path in map(os.path.expanduser, names) if os.path.exists(path)]  # noqa: PTH110
    if not files:
        raise ConfigError(
            [f"{where}: there is no file {' or '.join(names)}: name one by --kubeconfig, or in KUBECONFIG"]
        )
    for path in files:
        _refuse_unreadable(path)
    configuration = Configuration()
    try:
        with _plugin_errors_raised():
            load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig, context=context, client_configuration=configuration
            )
        _refuse_impersonation(KubeConfigMerger(kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION).config.value, context)  # type: ignore[no-untyped-call]
        if not configuration.host.startswith(("https://", "http://")):
            raise ConfigException("cluster.server is no URL: begin it with https://")
        configuration.retries = False
        try:
            return RESTClientObject(configuration)
        except Exception:  # ImportError or an exception of the HTTP library, for a proxy that it cannot use
            raise ConfigException(
                "cluster.proxy-url (or HTTPS_PROXY) is no HTTP proxy: begin it with http:// or https://, "
                "or read the objects with kubectl, and plan with -f"
            ) from None
    except AccessError:
        raise
    except (ConfigException, OSError) as error:
        problem = " ".join(str(error).split())[:300]
    except Exception as error:  # plug-ins and malformed files may raise any exception
        problem = f"not a kubeconfig that can be used ({type(error).__name__})"
    raise ConfigError([f"{where}: {problem}"])


def contexts(kubeconfig: str | None) -> list[str]:
    """Return the names of a kubeconfig's contexts. Raises ConfigError."""
    return sorted(_contexts(kubeconfig)[0])


def named_context(kubeconfig: str | None, context: str | None) -> str | None:
    """Return the context to read. If neither it nor a kubeconfig is named, print and return the current context.

    Raises ConfigError if there is no current context.
    """
    if kubeconfig is not None or context is not None:
        return context
    _, current = _contexts(None)
    say(f"context {current}", err=True)
    return current


def _contexts(kubeconfig: str | None) -> tuple[list[str], str]:
    """Return the names of a kubeconfig's contexts, and that of the current one. Raises ConfigError."""
    try:
        listed, current = list_kube_config_contexts(  # type: ignore[no-untyped-call]
            config_file=kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION
        )
    except (ConfigException, OSError) as error:
        raise ConfigError([f"{kubeconfig or 'kubeconfig'}: {' '.join(str(error).split())[:300].rstrip('.')}"]) from None
    return [str(each["name"]) for each in listed], str(current["name"])
