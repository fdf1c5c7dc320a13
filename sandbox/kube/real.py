"""A real kube-apiserver with its etcd, for as long as a `with` block lasts.

It offers the same handful of attributes as the simulated API, so one fixture can hand out either. The binaries are
those that envtest and kind users have: `KUBEBUILDER_ASSETS` names the folder that holds `kube-apiserver` and `etcd`.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trustme

from sandbox.kube.access import Rule, kubeconfig
from sandbox.kube.schema import Json, load_crds

ASSETS = "KUBEBUILDER_ASSETS"
HOW_TO_GET_THEM = (
    f"no real Kubernetes API: set {ASSETS} to a folder with kube-apiserver and etcd "
    "(for example: go run sigs.k8s.io/controller-runtime/tools/setup-envtest@latest use -p path)"
)
_READY_WITHIN = timedelta(seconds=60)  # a cold disk; 3-4 s is usual


def find_assets() -> Path | None:
    """The folder with both binaries, or None when there is none on this machine."""
    folder = os.environ.get(ASSETS, "")
    path = Path(folder)
    if folder and all((path / name).exists() for name in ("kube-apiserver", "etcd")):
        return path
    return None


class RealKubernetesAPI:
    """kube-apiserver on a free loopback port, RBAC on, Evenkeel's CRDs installed.

    Users: `admin` may do all; every other one (such as `evenkeel`) may do nothing until `grant` or RBAC objects say so.
    """

    name = "real"

    def __init__(
        self,
        *,
        crds: Iterable[dict[str, Json]] | None = None,
        users: Sequence[str] = ("evenkeel", "cluster-autoscaler", "nobody"),
        flags: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        """``flags``: what the API server is started with besides, made from its URL."""
        assets = find_assets()
        if assets is None:
            raise RuntimeError(HOW_TO_GET_THEM)
        self._assets = assets
        self._crds = list(crds) if crds is not None else load_crds()
        self._tokens = {user: secrets.token_hex(16) for user in ("admin", *users)}
        self._flags = flags
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""
        self.ca_pem = ""

    def token(self, user: str) -> str:
        """The bearer token of a user; KeyError for one that was not named at the start."""
        return self._tokens[user]

    def kubeconfig(self, user: str = "evenkeel") -> dict[str, Json]:
        """A kubeconfig with inline data only."""
        return kubeconfig(url=self.url, ca_pem=self.ca_pem, user=user, token=self.token(user))

    def grant(self, user: str, rules: Iterable[Rule]) -> None:
        """Allow `user` what the rules say, through a ClusterRole and its binding."""
        name = f"grant-{user}-{secrets.token_hex(4)}"
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        self.call("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": [r.as_json() for r in rules]})
        self.call(
            "POST",
            f"{rbac}/clusterrolebindings",
            {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            },
        )

    def expire_continue_tokens(self) -> None:
        """Compact etcd, which is what makes a running list's continue token too old."""
        # two writes move the revision past every open list
        for _ in range(2):
            self.call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "revision-"}})
        revision = int(self._etcd("range", {"key": base64.b64encode(b"\0").decode()})["header"]["revision"])
        self._etcd("compaction", {"revision": str(revision), "physical": True})

    def _etcd(self, verb: str, body: dict[str, Json]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._etcd_url}/v3/kv/{verb}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))

    def call(self, method: str, path: str, body: Json = None, *, content_type: str = "application/json") -> Json:
        """One request as `admin`, without a client library; returns the decoded answer."""
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
        self._folder = Path(tempfile.mkdtemp(prefix="evenkeel-kube-"))
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        folder = self._folder
        ca = trustme.CA()
        certificate = ca.issue_cert("127.0.0.1", "localhost")
        (folder / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        (folder / "tls.key").write_bytes(certificate.private_key_pem.bytes())
        # the API server wants RSA or ECDSA keys for its service account tokens; the serving key will do
        shutil.copy(folder / "tls.key", folder / "accounts.key")
        (folder / "tokens.csv").write_text(
            "".join(
                f"{token},{user},{user}{',system:masters' if user == 'admin' else ''}\n"
                for user, token in self._tokens.items()
            )
        )
        self.ca_pem = ca.cert_pem.bytes().decode()
        self._tls = ssl.create_default_context(cadata=self.ca_pem)
        client_port, peer_port, api_port = _free_ports(3)
        self._etcd_url = f"http://127.0.0.1:{client_port}"
        self.url = f"https://127.0.0.1:{api_port}"
        self._run(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            "--unsafe-no-fsync",
        )
        self._run(
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
        incident = ""
        while time.monotonic() < deadline:
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{Path(process.args[0]).name} ended early: {self._log_tail(process)}")  # type: ignore[index,arg-type]
            try:
                if ready():
                    return
            except (OSError, RuntimeError) as error:
                incident = str(error)
            threading.Event().wait(0.1)
        raise RuntimeError(f"waited {_READY_WITHIN.total_seconds():.0f} s until {what}: {incident}")

    def _run(self, program: str, *arguments: str) -> None:
        with (self._folder / f"{program}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(self._assets / program), *arguments],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                    env={"PATH": os.environ.get("PATH", ""), "HOME": str(self._folder)},
                )
            )

    def _log_tail(self, process: subprocess.Popen[bytes]) -> str:
        log = self._folder / f"{Path(process.args[0]).name}.log"  # type: ignore[index,arg-type]
        return log.read_text(errors="replace")[-600:]

    def _stop(self) -> None:
        # the API server first: without its etcd it would only log
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self._processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()
