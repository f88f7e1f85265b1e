"""Short programs in a process of their own, without the seconds in which each would import torch.

On Linux one process imports torch and nothing else; a program is run in a fork of it. So a program finds torch and what
torch imports in `sys.modules`, and nothing of the tests. Elsewhere each program gets a Python of its own.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SERVER = """
import json, os, sys, traceback, types
import torch

def run(request):
    for stream, path in ((1, request["stdout"]), (2, request["stderr"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    os.environ.clear(), os.environ.update(request["environ"]), os.chdir(request["cwd"])
    sys.stdin, sys.modules["__main__"] = open(os.devnull), types.ModuleType("__main__")
    exec(compile(request["code"], "<string>", "exec"), sys.modules["__main__"].__dict__)

def status_of(request):
    try:
        run(request)
    except SystemExit as left:
        return left.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for line in sys.stdin:
    child = os.fork()
    if not child:
        status = status_of(json.loads(line))
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)  # taking torch apart takes a second
"""


class FreshPython:
    """`run(code)` as `subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)`."""

    def __init__(self) -> None:
        self._server: subprocess.Popen | None = None

    def run(self, code: str) -> subprocess.CompletedProcess:
        """A program of one process without threads at its end; its result has returncode, stdout and stderr."""
        if sys.platform != "linux":
            return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        if self._server is None:
            command = [sys.executable, "-c", SERVER]
            self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: Path(folder, name) for name in ("stdout", "stderr")}
            place = {"environ": dict(os.environ), "cwd": os.getcwd()} | {
                name: str(path) for name, path in paths.items()
            }
            self._server.stdin.write(json.dumps({"code": code} | place) + "\n")
            self._server.stdin.flush()
            status = int(self._server.stdout.readline())
            return subprocess.CompletedProcess(code, status, **{name: path.read_text() for name, path in paths.items()})

    def close(self) -> None:
        """End the process that waits for programs."""
        if self._server is not None:
            self._server.communicate()
            self._server = None
