"""An echo and a broadcast on websockets and asyncio.

ADDRESS=IP python server.py PORT [CERTIFICATE KEY]
"""

import asyncio
import gc
import os
import ssl
import sys
import time

from websockets.asyncio.server import broadcast, serve
from websockets.exceptions import ConnectionClosed

# Connections that the kernel keeps until they are accepted.
BACKLOG = 4096


# Who has subscribed.
members = set()


async def answer(socket):
    service = publish if socket.request.path == "/broadcast" else echo
    try:
        await service(socket)
    except ConnectionClosed:
        # What one connection ends with is no matter of the others.
        pass
    finally:
        members.discard(socket)


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def publish(socket):
    """What anybody sends goes to all members; it is framed once."""
    async for message in socket:
        if message == "subscribe":
            members.add(socket)
            await socket.send("subscribed")
        else:
            broadcast(members, message)


class Pauses:
    """Tells the lab each pause of the collector right after it."""

    begun_ns = 0

    def __call__(self, phase, info):
        if phase == "start":
            self.begun_ns = time.perf_counter_ns()
            return
        # Not by way of sys.stdout, which may be in the middle of a line when the collector runs.
        ms = (time.perf_counter_ns() - self.begun_ns) / 1e6
        os.write(1, b"gc pause %.3f ms\n" % ms)


async def main(port, certificate=None, key=None):
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # As all contestants: TLS 1.3, keys by X25519, suites in the client's order, and no tickets.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_ecdh_curve("X25519")
        context.num_tickets = 0
    # As moonwire by default: no compression, 16 MiB for a message; and no pings, as a client that
    # is kept waiting by a load must not be ended for it.
    server = await serve(
        answer,
        os.environ["ADDRESS"],
        int(port),
        ssl=context,
        compression=None,
        max_size=16 * 1024 * 1024,
        ping_interval=None,
        backlog=BACKLOG,
    )
    print(f"listening on port {port}", flush=True)
    await server.serve_forever()


gc.callbacks.append(Pauses())
asyncio.run(main(*sys.argv[1:]))
