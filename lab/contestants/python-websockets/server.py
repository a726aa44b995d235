"""An echo on websockets and asyncio.

python server.py PORT [CERTIFICATE KEY]
"""

import asyncio
import ssl
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

# Connections that the kernel keeps until they are accepted.
BACKLOG = 4096


async def echo(socket):
    try:
        async for message in socket:
            await socket.send(message)
    except ConnectionClosed:
        # What one connection ends with is no matter of the others.
        pass


async def main(port, certificate=None, key=None):
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    # As moonwire by default: no compression, 16 MiB for a message; and no pings, as a client that
    # is kept waiting by a load must not be ended for it.
    server = await serve(
        echo,
        "127.0.0.1",
        int(port),
        ssl=context,
        compression=None,
        max_size=16 * 1024 * 1024,
        ping_interval=None,
        backlog=BACKLOG,
    )
    print(f"listening on port {port}", flush=True)
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
