"""Runs cases of the Autobahn test suite with kosoku, which runs the suite's own case files.

  autobahn.py list GLOB...                     the cases that the globs choose, one a line
  autobahn.py client URL FOLDER JOBS CASE...   a fuzzing client against a server
  autobahn.py server ws FOLDER CASE...         a fuzzing server for a client, until stdin ends

Reports go to FOLDER, index.json among them. The exit code says whether the cases could be run,
not what came of them.

kosoku 0.1.0 has no TLS, and needs a repair: its compression cases hash what they get as bytes, but
a message that came without compression is handed to them as str.
"""

import asyncio
import fnmatch
import itertools
import sys
import time
from pathlib import Path

import kosoku
from kosoku._report import write_reports
from kosoku.cases import CASES

from autobahn_wire import finish, say


def main():
    match sys.argv[1:]:
        case ["list", *globs]:
            print("\n".join(chosen(globs)))
        case ["client", url, folder, jobs, *cases]:
            asyncio.run(fuzz_server(url, Path(folder), int(jobs), cases))
        case ["server", "ws", folder, *cases]:
            asyncio.run(fuzz_client(Path(folder), cases))
        case _:
            sys.exit(__doc__)


def chosen(globs):
    return [case for case in CASES if any(fnmatch.fnmatchcase(case, glob) for glob in globs)]


async def fuzz_server(url, folder, jobs, cases):
    results = []
    # One group at a time, since kosoku says nothing before the end of a run.
    for group, members in itertools.groupby(cases, group_of):
        members = list(members)
        begin = time.monotonic()
        run = kosoku.run_fuzzingclient(url, members, concurrency=jobs)
        results += await verdicts(run)
        say(f"{group:>8}  {len(members):3} cases  {time.monotonic() - begin:6.1f} s")
    write_reports(map(Named, results), str(folder))


async def fuzz_client(folder, cases):
    async with kosoku.run_fuzzingserver(cases, host="127.0.0.1", port=0) as server:
        say(f"listening on ws://127.0.0.1:{server.port}")
        await asyncio.to_thread(sys.stdin.read)
        await finish(server.port)
        results = await verdicts(server.get_result())
        write_reports(results, str(folder))
        say(f"results {len(results)}")


class Named:
    """A result under our name; a server that does not name itself goes by its address."""

    agent = "moonwire"

    def __init__(self, case_result):
        self.case_result = case_result

    def __getattr__(self, attribute):
        return getattr(self.case_result, attribute)


async def verdicts(run):
    """Results of a run; that cases failed is the caller's to judge."""
    try:
        return await run
    except kosoku.FailureError as failure:
        return failure.results


def group_of(case):
    """Sections of the suite, and parts of those that take long."""
    section, part, *_ = case.split(".")
    return f"{section}.{part}" if section in ("9", "12", "13") else section


def repair():
    for case, definition in CASES.items():
        if case.startswith(("12.", "13.")):
            definition.onMessage = with_bytes(definition.onMessage)


def with_bytes(on_message):
    def repaired(self, message, binary):
        if isinstance(message, str):
            message = message.encode("latin-1" if binary else "utf-8")
        return on_message(self, message, binary)

    return repaired


repair()
main()
