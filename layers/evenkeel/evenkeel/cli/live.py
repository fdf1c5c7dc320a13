"""A cluster read with the caller's own kubeconfig: on a laptop, exec plug-ins and files are the caller's business."""

from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_kube_config
from yaml import YAMLError

from evenkeel.adapters.kubernetes.client import KubernetesApi
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.bootstrap import SystemClock
from evenkeel.config import ClusterPolicy, ConfigError

_PATIENCE_SECONDS = 120.0


def open_cluster(policy: ClusterPolicy, kubeconfig: str | None, context: str | None) -> KubernetesCluster:
    """Raises ConfigError where the kubeconfig cannot be used."""
    configuration = Configuration()
    where = kubeconfig or "kubeconfig"
    try:
        load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context, client_configuration=configuration
        )
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError([f"{where}: {' '.join(str(error).split())[:300]}"]) from None
    configuration.retries = False
    clock = SystemClock()
    api = KubernetesApi(context or where, ApiClient(configuration), None, clock)
    deadline = clock.now().timestamp() + _PATIENCE_SECONDS
    return KubernetesCluster(api, policy, lambda: deadline - clock.now().timestamp())
