"""A real kube-apiserver with its etcd, for as long as a `with` block lasts.

It has the same attributes as the simulated API, so a fixture can return either. As for envtest, `KUBEBUILDER_ASSETS`
names the folder of `kube-apiserver` and `etcd`.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import trustme

from sandbox.kube.access import Rule, kubeconfig
from sandbox.kube.schema import Json, load_crds
from sandbox.process import free_port, running

ASSETS = "KUBEBUILDER_ASSETS"
HOW_TO_GET_THEM = (
    f"no real Kubernetes API: set {ASSETS} to a folder with kube-apiserver and etcd "
    "(for example: go run sigs.k8s.io/controller-runtime/tools/setup-envtest@latest use -p path)"
)
_READY_WITHIN = timedelta(seconds=60)  # needed on a slow disk; usually, the server is ready in 4 s


def find_assets() -> Path | None:
    """Return the folder with both binaries; None if this machine has none."""
    folder = os.environ.get(ASSETS, "")
    path = Path(folder)
    if folder and all((path / name).exists() for name in ("kube-apiserver", "etcd")):
        return path
    return None


class RealKubernetesAPI:
    """kube-apiserver on a free loopback port, RBAC on, Evenkeel's CRDs installed.

    The user `admin` may do everything. Every other user, such as `evenkeel`, has only the rights of `grant` and of RBAC
    objects.
    """

    name = "real"

    def __init__(
        self,
        *,
        crds: Iterable[dict[str, Json]] | None = None,
        users: Sequence[str] = ("evenkeel", "cluster-autoscaler", "nobody"),
        flags: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        """``flags`` receives the API server's URL and returns further arguments for the server."""
        assets = find_assets()
        if assets is None:
            raise RuntimeError(HOW_TO_GET_THEM)
        self._assets = assets
        self._crds = list(crds) if crds is not None else load_crds()
        self._tokens = {user: secrets.token_hex(16) for user in ("admin", *users)}
        self._flags = flags
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()
        self.url = ""
        self.ca_pem = ""

    def token(self, user: str) -> str:
        """Return the bearer token of a user; KeyError for an unknown user."""
        return self._tokens[user]

    def kubeconfig(self, user: str = "evenkeel") -> dict[str, Json]:
        """Return a kubeconfig with inline data only."""
        return kubeconfig(url=self.url, ca_pem=self.ca_pem, user=user, token=self.token(user))

    def grant(self, user: str, rules: Iterable[Rule]) -> None:
        """Give rules to a user through a ClusterRole and its binding."""
        name = f"grant-{user}-{secrets.token_hex(4)}"
        rbac, group = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
        metadata = {"metadata": {"name": name}}
        self.call("POST", f"{rbac}/clusterroles", {**metadata, "rules": [rule.as_json() for rule in rules]})
        role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
        binding = {"roleRef": role, "subjects": [{"apiGroup": group, "kind": "User", "name": user}]}
        self.call("POST", f"{rbac}/clusterrolebindings", {**metadata, **binding})

    def expire_continue_tokens(self) -> None:
        """Compact etcd, which makes the continue token of every open list too old."""
        # Two writes raise etcd's revision above the revision of every open list.
        for _ in range(2):
            self.call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "revision-"}})
        revision = int(self._etcd("range", {"key": base64.b64encode(b"\0").decode()})["header"]["revision"])
        self._etcd("compaction", {"revision": str(revision), "physical": True})

    def _etcd(self, verb: str, body: dict[str, Json]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._etcd_url}/v3/kv/{verb}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))

    def call(self, method: str, path: str, body: Json = None, *, content_type: str = "application/json") -> Json:
        """Send a request as `admin`, without a client library; return the decoded answer."""
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.token('admin')}", "Content-Type": content_type},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._tls) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        return json.loads(text) if text.startswith((b"{", b"[")) else text.decode()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = Path(tempfile.mkdtemp(prefix="evenkeel-kube-"))
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._start(stack)
            self._stack = stack.pop_all()  # the stack stops the API server before etcd
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._processes.clear()

    def _start(self, stack: ExitStack) -> None:
        folder = self._folder
        ca = trustme.CA()
        certificate = ca.issue_cert("127.0.0.1", "localhost")
        (folder / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        (folder / "tls.key").write_bytes(certificate.private_key_pem.bytes())
        # The API server needs an RSA or ECDSA key for service account tokens. The TLS key is such a key.
        shutil.copy(folder / "tls.key", folder / "accounts.key")
        (folder / "tokens.csv").write_text(
            "".join(
                f"{token},{user},{user}{',system:masters' if user == 'admin' else ''}\n"
                for user, token in self._tokens.items()
            )
        )
        self.ca_pem = ca.cert_pem.bytes().decode()
        self._tls = ssl.create_default_context(cadata=self.ca_pem)
        client_port, peer_port, api_port = (free_port() for _ in range(3))
        self._etcd_url = f"http://127.0.0.1:{client_port}"
        self.url = f"https://127.0.0.1:{api_port}"
        self._run(
            stack,
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            "--unsafe-no-fsync",
        )
        self._run(
            stack,
            "kube-apiserver",
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={api_port}",
            f"--cert-dir={folder}",
            f"--tls-cert-file={folder / 'tls.crt'}",
            f"--tls-private-key-file={folder / 'tls.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            *self._flags(self.url),
        )
        self._wait(lambda: self.call("GET", "/readyz") == "ok", "the API server is ready")
        for crd in self._crds:
            self.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        self._wait(self._crds_are_served, "all custom resources are served")
        self._wait(lambda: bool(self.call("GET", "/api/v1/namespaces/default")), "the default namespace exists")

    def _crds_are_served(self) -> bool:
        for crd in self._crds:
            spec = crd["spec"]
            for version in spec["versions"]:
                names = self.call("GET", f"/apis/{spec['group']}/{version['name']}")["resources"]
                if spec["names"]["plural"] not in {item["name"] for item in names}:
                    return False
                self.call("GET", f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}?limit=1")
        return True

    def _wait(self, ready: Any, what: str) -> None:
        deadline = time.monotonic() + _READY_WITHIN.total_seconds()
        last_error = ""
        while time.monotonic() < deadline:
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{Path(process.args[0]).name} ended early: {self._log_tail(process)}")  # type: ignore[index,arg-type]
            try:
                if ready():
                    return
            except (OSError, RuntimeError) as error:
                last_error = str(error)
            threading.Event().wait(0.1)
        raise RuntimeError(f"waited {_READY_WITHIN.total_seconds():.0f} s until {what}: {last_error}")

    def _run(self, stack: ExitStack, program: str, *arguments: str) -> None:
        log = stack.enter_context((self._folder / f"{program}.log").open("wb"))
        env = {"PATH": os.environ.get("PATH", ""), "HOME": str(self._folder)}
        command = [str(self._assets / program), *arguments]
        process = running(command, log=log, cwd=self._folder, env=env, patience=10)
        self._processes.append(stack.enter_context(process))

    def _log_tail(self, process: subprocess.Popen[bytes]) -> str:
        log = self._folder / f"{Path(process.args[0]).name}.log"  # type: ignore[index,arg-type]
        return log.read_text(errors="replace")[-600:]
