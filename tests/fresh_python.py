"""Short programs in a process of their own, without the seconds in which each would import torch.

On Linux one process imports torch and nothing else; a program is run in a fork of it. So a program finds torch and what
torch imports in `sys.modules`, and nothing of the tests. Elsewhere each program gets a Python of its own.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SERVER = """
import atexit, json, os, signal, sys, traceback, types
import torch

signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then close this

def run(request):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, path in ((1, request["stdout"]), (2, request["stderr"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    os.environ.clear(), os.environ.update(request["environ"]), os.chdir(request["cwd"])
    sys.stdin, sys.modules["__main__"] = open(os.devnull), types.ModuleType("__main__")
    exec(compile(request["code"], "<string>", "exec"), sys.modules["__main__"].__dict__)

def status_of(request):
    try:
        run(request)
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
        return 1 if isinstance(left.code, str) else left.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for line in sys.stdin:
    request = json.loads(line)
    if "child" in request:
        print(os.waitstatus_to_exitcode(os.waitpid(request["child"], 0)[1]), flush=True)
        continue
    child = os.fork()
    if not child:
        status = status_of(request)
        atexit._run_exitfuncs()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)
    print(child, flush=True)
os._exit(0)  # taking torch apart takes a second
"""


class FreshPython:
    """`run(code)` as `subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)`.

    A program may start processes, and its `atexit` functions run; threads that it leaves are not waited for.
    """

    def __init__(self) -> None:
        self._server: subprocess.Popen | None = None

    def run(self, code: str) -> subprocess.CompletedProcess:
        """Its result has returncode, stdout and stderr."""
        return self.start(code)()

    def start(self, code: str) -> Callable[[], subprocess.CompletedProcess]:
        """Begin a program; a call of what is returned waits for its end."""
        if sys.platform != "linux":
            return functools.partial(_end, subprocess.Popen([sys.executable, "-c", code], **_PIPES))
        folder = tempfile.TemporaryDirectory()
        paths = {name: Path(folder.name, name) for name in ("stdout", "stderr")}
        place = {"environ": dict(os.environ), "cwd": os.getcwd()} | {name: str(path) for name, path in paths.items()}
        child = self._ask({"code": code} | place)

        def end() -> subprocess.CompletedProcess:
            status = self._ask({"child": child})
            with folder:
                told = {name: path.read_text() if path.exists() else "" for name, path in paths.items()}
            return subprocess.CompletedProcess(code, status, **told)

        return end

    def _ask(self, request: dict) -> int:
        if self._server is None:
            command = [sys.executable, "-c", SERVER]
            self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def close(self) -> None:
        """End the process that waits for programs."""
        if self._server is not None:
            self._server.communicate()
            self._server = None


_PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def _end(process: subprocess.Popen) -> subprocess.CompletedProcess:
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
