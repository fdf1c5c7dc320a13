"""Runs a built function in Lambda's real runtime client (`awslambdaric`), without Lambda.

A function's process asks a small HTTP server for its next event and posts its answer there: the Runtime API. This
module is that server, and starts the process with the layout that Lambda gives it: layers before what the image has.

    with RuntimeProcess(function=..., layers=[...], python=..., environment={...}) as runtime:
        answer = runtime.invoke({"action": "status"})
        runtime.init_seconds
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sandbox.aws import Deployment
from sandbox.template import ROOT

_API = "/2018-06-01/runtime"


class FunctionError(RuntimeError):
    """The handler raised, or could not be loaded; `kind` and the message are what the runtime client reported."""

    def __init__(self, kind: str, message: str, trace: Sequence[str], log: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.trace = list(trace)
        self.log = log


@dataclass(frozen=True)
class _Answer:
    kind: str  # response, error, init-error, exit
    body: Any


class _RuntimeApi(ThreadingHTTPServer):
    """One process asks at a time, as in Lambda; `events` holds at most the one event that is waited for."""

    daemon_threads = True

    def __init__(self, arn: str, timeout: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.arn = arn
        self.timeout_seconds = timeout
        self.events: queue.Queue[bytes | None] = queue.Queue()
        self.answers: queue.Queue[_Answer] = queue.Queue()
        self.asked = threading.Event()
        self.first_asked_at = 0.0

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # that is a process which has ended or was stopped
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _RuntimeApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every call waits for the client's delayed acknowledgement
    wbufsize = -1  # one segment per answer

    def do_GET(self) -> None:
        if self.path != f"{_API}/invocation/next":
            self._reply(404, b"{}")
            return
        if not self.server.asked.is_set():
            self.server.first_asked_at = time.perf_counter()
            self.server.asked.set()
        event = self.server.events.get()
        if event is None:  # the end: the process is about to be stopped and gets no more answers
            self.close_connection = True
            return
        deadline = int((time.time() + self.server.timeout_seconds) * 1000)
        self._reply(
            200,
            event,
            {
                "Lambda-Runtime-Aws-Request-Id": str(uuid.uuid4()),
                "Lambda-Runtime-Deadline-Ms": str(deadline),
                "Lambda-Runtime-Invoked-Function-Arn": self.server.arn,
                "Lambda-Runtime-Trace-Id": "Root=1-00000000-000000000000000000000000;Sampled=0",
            },
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._reply(202, b'{"status":"OK"}')
        if self.path == f"{_API}/init/error":
            kind = "init-error"
        else:
            kind = "error" if self.path.endswith("/error") else "response"
        self.server.answers.put(_Answer(kind, json.loads(body or b"null")))

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the function's own log is the interesting one."""


class RuntimeProcess(AbstractContextManager["RuntimeProcess"]):
    """A function in a process of its own, from cold start to its end.

    function: folder that Lambda would unpack to /var/task
    layers: folders that Lambda would unpack to /opt, each with `python/` inside, first wins
    runtime: folder with awslambdaric and boto3, which Lambda's image brings; without it `python` must have them
    python: the interpreter
    environment: the function's variables; nothing of this process's environment reaches it but PATH and HOME
    timeout: seconds that Lambda would give it, and that this class waits
    """

    def __init__(
        self,
        *,
        function: Path,
        python: Path,
        layers: Sequence[Path] = (),
        runtime: Path | None = None,
        handler: str = "app.handler",
        environment: Mapping[str, str] | None = None,
        timeout: float = 30,
        name: str = "function",
    ) -> None:
        isolated = ["-S"] if runtime else []  # nothing of the interpreter's own site-packages, which Lambda has not
        self._command = [str(python), *isolated, "-m", "awslambdaric", handler]
        self._cwd = function.resolve()
        paths = [
            self._cwd,
            *(layer.resolve() / "python" for layer in layers),
            *([runtime.resolve()] if runtime else []),
        ]
        self._environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": os.pathsep.join(str(path) for path in paths),
            "PYTHONDONTWRITEBYTECODE": "1",  # Lambda's disk is read-only: the uncompiled is compiled at each start
            "LAMBDA_TASK_ROOT": str(self._cwd),
            "AWS_LAMBDA_FUNCTION_NAME": name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
            "AWS_LAMBDA_LOG_FORMAT": "JSON",
            "_HANDLER": handler,
            **(environment or {}),
        }
        self._timeout = timeout
        self._api = _RuntimeApi(f"arn:aws:lambda:eu-central-1:123456789012:function:{name}", timeout)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this object: the log may be read after the end)
        self._process: subprocess.Popen[bytes] | None = None
        self.init_seconds = 0.0
        """Seconds from the start of the process to its first request for an event: Lambda's Init Duration."""

    def __enter__(self) -> RuntimeProcess:
        threading.Thread(target=self._api.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        host, port = self._api.server_address[:2]
        address = f"{host!s}:{port}"
        started = time.perf_counter()
        self._process = subprocess.Popen(
            self._command,
            cwd=self._cwd,
            env={**self._environment, "AWS_LAMBDA_RUNTIME_API": address},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()
        try:
            while not self._api.asked.wait(0.005):
                if not self._api.answers.empty():
                    self._fail(self._api.answers.get())
                if time.perf_counter() - started > self._timeout:
                    raise TimeoutError(f"{self._cwd.name} did not start within {self._timeout:g} s:\n{self.log()}")
        except BaseException:
            self.__exit__()
            raise
        self.init_seconds = self._api.first_asked_at - started
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(timeout=3)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._api.events.put(None)
        self._api.shutdown()
        self._api.server_close()

    def invoke(self, event: Any) -> Any:
        """The handler's answer. FunctionError when it raised or died, TimeoutError when it took too long."""
        self._api.events.put(json.dumps(event).encode())
        try:
            answer = self._api.answers.get(timeout=self._timeout)
        except queue.Empty:
            raise TimeoutError(f"{self._cwd.name} gave no answer within {self._timeout:g} s:\n{self.log()}") from None
        if answer.kind != "response":
            self._fail(answer)
        return answer.body

    def cpu_seconds(self) -> float:
        """Processor time that the process has used so far, in user and kernel mode, all its threads together."""
        # What clock_getcpuclockid(3) makes of a process id on Linux, where alone the runtime client runs.
        return time.clock_gettime(~self._pid << 3 | 2)

    def peak_bytes(self) -> int:
        """The most memory that the process has had resident at once."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    @property
    def _pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self._cwd.name} has not been started")
        return self._process.pid

    def log(self) -> str:
        """Everything that the function has printed so far."""
        descriptor = self._log.fileno()  # read at an offset of our own: the process writes at the file's
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def _fail(self, answer: _Answer) -> None:
        report = answer.body or {}
        raise FunctionError(
            report.get("errorType", answer.kind),
            report.get("errorMessage", "no reason given"),
            report.get("stackTrace") or [],
            self.log(),
        )

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        reason = f"exit status {code}\n{self.log()[-2000:]}"
        self._api.answers.put(_Answer("exit", {"errorType": "Runtime.ExitError", "errorMessage": reason}))


@dataclass(frozen=True)
class HostBuild:
    """The layers as deployed, but for this machine's processor and for an interpreter that it has."""

    python: Path
    layers: tuple[Path, ...]
    runtime: Path

    def process(
        self, deployment: Deployment, logical_id: str, environment: Mapping[str, str] | None = None
    ) -> RuntimeProcess:
        """The function as the template describes it, with its variables and time limit, on these layers."""
        function = deployment.function(logical_id)
        return RuntimeProcess(
            function=function.code,
            python=self.python,
            layers=self.layers,
            runtime=self.runtime,
            handler=function.handler,
            environment=deployment.environment(logical_id) | dict(environment or {}),
            timeout=function.timeout,
            name=logical_id,
        )


def host_build() -> HostBuild:
    """Makes the twin with `make build-host` (instant when nothing changed) and says where it is."""
    target = ROOT / "build" / "host"
    target.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    with (target / ".lock").open("w") as lock:  # several test workers come here at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(
            ["make", "-s", "build-host"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    if made.returncode:
        raise RuntimeError(f"make build-host failed:\n{made.stdout}{made.stderr}")
    layers = tuple(target / name for name in ("EvenkeelLayer", "DependenciesLayer"))
    return HostBuild(Path((target / "python").read_text().strip()), layers, target / "runtime")
