"""What the suite's runners need beside the suite: TLS in front of one, and an end of its run."""

import asyncio
import contextlib
import ssl
import subprocess
import tempfile
from pathlib import Path

READ_BYTES = 256 * 1024


def say(line):
    print(line, flush=True)


async def finish(port, tls=None):
    """Ends a fuzzing server's run as a client of the suite does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    request = (
        "GET /updateReports?agent=moonwire HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{port}\r\n"
        "Upgrade: websocket\r\n"
        "Connection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n"
    )
    writer.write(request.encode())
    with contextlib.suppress(OSError):
        await reader.read()
    writer.close()


class Pipe:
    """Hands bytes on between whoever connects to its port and a fixed address.

    Each side may have TLS (`outer` towards who connects, `inner` towards the address). An end of
    stream is handed on as soon as all before it was, so that both sides see who closes first.
    """

    def __init__(self, host, port, outer, inner):
        self.address = host, port
        self.outer, self.inner = outer, inner
        # The event loop itself holds no task that only waits.
        self.tasks = set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(
            self.accept, "127.0.0.1", 0, limit=READ_BYTES, ssl=self.outer
        )
        return self.server.sockets[0].getsockname()[1]

    async def __aexit__(self, *exception):
        self.server.close()
        for task in self.tasks:
            task.cancel()

    def accept(self, reader, writer):
        task = asyncio.ensure_future(self.connect(reader, writer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def connect(self, reader, writer):
        try:
            peer_reader, peer_writer = await asyncio.open_connection(
                *self.address, limit=READ_BYTES, ssl=self.inner
            )
        except OSError as error:
            say(f"no connection to {self.address}: {error}")
            writer.close()
            return
        await asyncio.gather(hand_on(reader, peer_writer), hand_on(peer_reader, writer))


async def hand_on(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


def any_server():
    """TLS of a client that trusts every server: a test server signs for itself."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def self_signed():
    """TLS of a server with a certificate made for this run."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        context.load_cert_chain(*certificate(Path(folder)))
    return context


def certificate(folder):
    """Files in `folder` with a certificate for 127.0.0.1, signed by itself, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        + ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        + ["-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    return certificate, key
