"""A client in Python: echoes a text, a binary and a fragmented message, and closes with 1000.

usage: client.py URL
"""

import asyncio
import ssl
import sys

from websockets.asyncio.client import connect

# One message over the default limit of many servers' frames, sent in pieces.
PIECE = 16 * 1024
PIECES = 64


async def echo(url):
    context = None
    if url.startswith("wss:"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    async with connect(url, ssl=context, compression=None, max_size=2**24) as socket:
        for message in ["Grüße, 世界 🌙", bytes(range(256)), "", b""]:
            await socket.send(message)
            reply = await socket.recv()
            assert reply == message, f"sent {message!r}, received {reply!r}"
        pieces = [bytes([index]) * PIECE for index in range(PIECES)]
        await socket.send(pieces)
        assert await socket.recv() == b"".join(pieces), "1 MiB came back changed"
        await (await socket.ping(b"are you there"))
        await socket.close(1000, "done")
        assert socket.close_code == 1000, f"closed with {socket.close_code}"


async def main():
    await asyncio.wait_for(echo(sys.argv[1]), timeout=60)


asyncio.run(main())
