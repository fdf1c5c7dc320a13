"""Runs a built function in Lambda's real runtime client (`awslambdaric`), without Lambda.

A function's process requests its next event from a small HTTP server, the Runtime API, and posts its answer there. This
module is that server. It starts the process with Lambda's search path, in which layers precede the image's packages.

    with RuntimeProcess(function=..., layers=[...], python=..., environment={...}) as runtime:
        answer = runtime.invoke({"action": "status"})
        runtime.init_seconds
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.aws import Deployment
from sandbox.process import running
from sandbox.server import HttpRequest, LoopbackServer, Response
from sandbox.template import ROOT

_API = "/2018-06-01/runtime"


class FunctionError(RuntimeError):
    """The handler raised an exception or did not load. `kind` and message are those of the runtime client's report."""

    def __init__(self, kind: str, message: str, trace: Sequence[str], log: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.trace = list(trace)
        self.log = log


@dataclass(frozen=True)
class _Answer:
    kind: str  # one of response, error, init-error, exit
    body: Any


class _RuntimeApi:
    """The Runtime API of one process. `events` holds at most one event, because Lambda sends one at a time."""

    def __init__(self, arn: str, timeout: float) -> None:
        self.server = LoopbackServer(self._respond)
        self.events: queue.Queue[bytes | None] = queue.Queue()
        self.answers: queue.Queue[_Answer] = queue.Queue()
        self.ready = threading.Event()
        self.ready_at = 0.0
        self._arn = arn
        self._timeout_seconds = timeout

    def _respond(self, request: HttpRequest) -> Response | None:
        if request.method == "POST":
            kind = "error" if request.target.endswith("/error") else "response"
            if request.target == f"{_API}/init/error":
                kind = "init-error"
            self.answers.put(_Answer(kind, json.loads(request.body or b"null")))
            return Response(status=202, body=b'{"status":"OK"}')
        if request.target != f"{_API}/invocation/next":
            return Response(status=404, body=b"{}")
        if not self.ready.is_set():
            self.ready_at = time.perf_counter()
            self.ready.set()
        event = self.events.get()
        if event is None:  # the process is about to be stopped
            return None
        headers = {
            "Lambda-Runtime-Aws-Request-Id": str(uuid.uuid4()),
            "Lambda-Runtime-Deadline-Ms": str(int((time.time() + self._timeout_seconds) * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": self._arn,
            "Lambda-Runtime-Trace-Id": "Root=1-00000000-000000000000000000000000;Sampled=0",
        }
        return Response(status=200, body=event, headers=headers)


class RuntimeProcess(AbstractContextManager["RuntimeProcess"]):
    """A function in its own process, from cold start to its end.

    Args:
        function: The folder that Lambda unpacks to /var/task.
        layers: The folders that Lambda unpacks to /opt, each with a folder `python/`. The first one has precedence.
        runtime: The folder with awslambdaric and boto3 of Lambda's image. If None, `python` must have both.
        python: The interpreter.
        environment: The function's variables. From this process's environment, it gets only PATH and HOME.
        timeout: The function's time limit in seconds. This class also waits for an answer for this time.
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
        isolated = ["-S"] if runtime else []  # without the interpreter's site-packages
        self._command = [str(python), *isolated, "-m", "awslambdaric", handler]
        self._cwd = function.resolve()
        paths = [self._cwd, *(layer.resolve() / "python" for layer in layers)]
        paths += [runtime.resolve()] if runtime else []
        self._environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": os.pathsep.join(str(path) for path in paths),
            "PYTHONDONTWRITEBYTECODE": "1",  # Lambda's disk is read-only
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
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (tests read the log after the end)
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self.init_seconds = 0.0
        """Lambda's Init Duration: seconds from the start of the process to its first request for an event."""

    def __enter__(self) -> RuntimeProcess:
        self._stack.enter_context(self._api.server)
        self._stack.callback(self._api.events.put, None)
        started = time.perf_counter()
        env = {**self._environment, "AWS_LAMBDA_RUNTIME_API": self._api.server.address}
        process = running(self._command, log=self._log, cwd=self._cwd, env=env, patience=3)  # type: ignore[arg-type]
        self._process = self._stack.enter_context(process)
        threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()
        try:
            while not self._api.ready.wait(0.005):
                if not self._api.answers.empty():
                    self._fail(self._api.answers.get())
                if time.perf_counter() - started > self._timeout:
                    raise TimeoutError(f"{self._cwd.name} did not start within {self._timeout:g} s:\n{self.log()}")
        except BaseException:
            self.__exit__()
            raise
        self.init_seconds = self._api.ready_at - started
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def invoke(self, event: Any) -> Any:
        """Return the handler's answer. Raises FunctionError if it raises or exits, TimeoutError if it is slow."""
        self._api.events.put(json.dumps(event).encode())
        try:
            answer = self._api.answers.get(timeout=self._timeout)
        except queue.Empty:
            raise TimeoutError(f"{self._cwd.name} gave no answer within {self._timeout:g} s:\n{self.log()}") from None
        if answer.kind != "response":
            self._fail(answer)
        return answer.body

    def cpu_seconds(self) -> float:
        """Return the processor time of all threads of the process so far, in user and kernel mode."""
        # The clock id of clock_getcpuclockid(3) on Linux; the runtime client runs on no other system.
        return time.clock_gettime(~self._pid << 3 | 2)

    def peak_bytes(self) -> int:
        """Return the peak resident memory of the process."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    @property
    def _pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self._cwd.name} has not been started")
        return self._process.pid

    def log(self) -> str:
        """Return everything that the function has printed so far."""
        descriptor = self._log.fileno()  # pread keeps the file's offset, at which the process writes
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
    """The deployed layers, built for this machine's processor and interpreter."""

    python: Path
    layers: tuple[Path, ...]
    runtime: Path

    def process(
        self, deployment: Deployment, logical_id: str, environment: Mapping[str, str] | None = None
    ) -> RuntimeProcess:
        """Return the template's function with its variables and time limit, on these layers."""
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
    """Build the layers with `make build-host`, which is instant if nothing changed."""
    target = ROOT / "build" / "host"
    target.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    with (target / ".lock").open("w") as lock:  # several test workers build at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(
            ["make", "-s", "build-host"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    if made.returncode:
        raise RuntimeError(f"make build-host failed:\n{made.stdout}{made.stderr}")
    layers = tuple(target / name for name in ("EvenkeelLayer", "DependenciesLayer"))
    return HostBuild(Path((target / "python").read_text().strip()), layers, target / "runtime")
