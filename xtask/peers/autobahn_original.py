"""Runs cases of the Autobahn test suite with its own program, which needs Python 2.7 and is slow.

  autobahn_original.py client URL FOLDER JOBS CASE...   a fuzzing client against a server
  autobahn_original.py server ws|wss FOLDER CASE...     a fuzzing server, until stdin ends

Like autobahn.py otherwise. The suite is installed when it is first needed.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from autobahn_wire import any_server, certificate, finish, say

REQUIREMENTS = Path(__file__).with_name("requirements-original.txt")
VIRTUALENV = "virtualenv==20.21.1"
CASES_PER_LINE = 25
START_SECONDS = 10


def main():
    match sys.argv[1:]:
        case ["client", url, folder, jobs, *cases]:
            asyncio.run(fuzz_server(url, Path(folder), int(jobs), cases))
        case ["server", "ws" | "wss" as scheme, folder, *cases]:
            asyncio.run(fuzz_client(scheme == "wss", Path(folder), cases))
        case _:
            sys.exit(__doc__)


async def fuzz_server(url, folder, jobs, cases):
    """A process runs one case after the other, so each of several has its share of them."""
    shares = [cases[job::jobs] for job in range(min(jobs, len(cases)))]
    names = [f"part{number}" for number in range(1, len(shares) + 1)]
    progress = Progress(len(cases))
    target = {"agent": "moonwire", "url": url, "options": {"version": 18}}
    runs = [
        run_client(folder / name, share, target, progress) for name, share in zip(names, shares)
    ]
    await asyncio.gather(*runs)
    index = {}
    for name in names:
        part = json.loads((folder / name / "index.json").read_text())
        for case, verdict in part["moonwire"].items():
            index[case] = verdict | {"reportfile": f"{name}/{verdict['reportfile']}"}
    (folder / "index.json").write_text(json.dumps({"moonwire": index}, indent=3))


async def run_client(folder, cases, target, progress):
    process = await start("fuzzingclient", folder, cases, {"servers": [target]})
    async for line in process.stdout:
        progress.see(line)
    if await process.wait() != 0:
        sys.exit(f"wstest ended with {process.returncode}")


async def fuzz_client(tls, folder, cases):
    port = free_port()
    url = f"{'wss' if tls else 'ws'}://127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"url": url}
    if tls:
        settings["cert"], settings["key"] = map(str, certificate(folder))
    process = await start("fuzzingserver", folder, cases, settings)
    try:
        # Read, so that the process does not block on what it says.
        output = asyncio.ensure_future(process.stdout.read())
        await connectable(port, process)
        say(f"listening on {url}")
        await asyncio.to_thread(sys.stdin.read)
        await finish(port, any_server() if tls else None)
        index = json.loads((folder / "index.json").read_text())
    finally:
        process.kill()
        await process.wait()
        await output
    say(f"results {sum(map(len, index.values()))}")


async def start(mode, folder, cases, settings):
    folder.mkdir(parents=True, exist_ok=True)
    specification = {
        "options": {"failByDrop": False},
        "outdir": str(folder),
        "cases": cases,
        "exclude-cases": [],
        "exclude-agent-cases": {},
    }
    path = folder / "specification.json"
    path.write_text(json.dumps(specification | settings))
    # Without -u 0 a server would take port 8080 too.
    return await asyncio.create_subprocess_exec(
        *(wstest(), "-m", mode, "-s", path, "-u", "0"),
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


class Progress:
    """Counts the cases that the suite says it begins."""

    def __init__(self, cases):
        self.cases = cases
        self.begun = 0

    def see(self, line):
        if not line.startswith(b"Running test case ID"):
            return
        self.begun += 1
        if self.begun % CASES_PER_LINE == 0:
            say(f"{self.begun:8} of {self.cases} cases")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def connectable(port, process):
    for _ in range(START_SECONDS * 10):
        with contextlib.suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        if process.returncode is not None:
            break
        await asyncio.sleep(0.1)
    sys.exit("wstest does not listen")


def wstest():
    """The suite's program, in an environment beside the one that runs us."""
    peers = Path(sys.prefix).parent
    environment = peers / "python2"
    installed = environment / "requirements.txt"
    if not installed.exists() or installed.read_text() != REQUIREMENTS.read_text():
        say("installing the suite for Python 2.7")
        tools = peers / "virtualenv"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", tools, "--upgrade", VIRTUALENV], check=True)
        subprocess.run(
            [sys.executable, "-m", "virtualenv", "--quiet", "--python", python2(), environment],
            env=os.environ | {"PYTHONPATH": str(tools)},
            check=True,
        )
        pip = [environment / "bin/python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--requirement", REQUIREMENTS], check=True)
        shutil.copy(REQUIREMENTS, installed)
    return environment / "bin/wstest"


def python2():
    """A Python 2.7 that works: a version manager's wrapper may be there without one."""
    candidates = [shutil.which("python2.7"), shutil.which("python2")]
    candidates += Path.home().glob(".pyenv/versions/2.7*/bin/python2.7")
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    sys.exit(
        "no Python 2.7 here, which the suite's own program needs, and wss:// needs that program; "
        "`pyenv install 2.7.18` brings one"
    )


if __name__ == "__main__":
    main()
