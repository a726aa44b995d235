"""A client of the LAppS protocol in Python: logs in, asks, subscribes, and logs out.

usage: lapps_client.py URL TIMES

It asks for echoes until it has heard so many notifications of the time, checks all that comes, and
prints what it counted as JSON.
"""

import asyncio
import json
import sys
import time

import cbor2
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedOK

TIME, BLOB = 5, 6
PAUSE_S = 0.01
# Longer than any answer takes on a busy machine.
PATIENCE_S = 60


class Client:
    def __init__(self, socket):
        self.socket = socket
        self.requests = 0
        self.notifications = 0
        self.heard = []

    async def send(self, message):
        # Now with floats of 64 bits, now in their shortest form.
        canonical = self.requests % 2 == 1
        await self.socket.send(cbor2.dumps({"lapps": 1, **message}, canonical=canonical))

    async def request(self, method, params):
        await self.send({"method": method, "params": params})
        self.requests += 1
        while True:
            message = await self.receive()
            if message["cid"] == 0:
                assert message["status"] == 1, message
                assert set(message) == {"status", "cid", "result"}, message
                return message["result"]

    async def notify(self, method, cid, params):
        await self.send({"method": method, "cid": cid, "params": params})
        self.notifications += 1

    async def receive(self):
        data = await asyncio.wait_for(self.socket.recv(), PATIENCE_S)
        assert isinstance(data, bytes), data
        message = cbor2.loads(data)
        if message["cid"] != 0:
            assert set(message) == {"cid", "message"}, message
            assert message["cid"] == TIME, message
            assert message["message"][0].startswith("Server time: "), message
            self.heard.append(time.monotonic())
        return message


def forms(number):
    """Every form of a value that JSON has, of many sizes."""
    integers = [number, -number, 2**32 + number, -(2**40), 2**64 - 1, -(2**63)]
    floats = [number / 8, number / 7, -1e300, 1.5]
    text = "Grüße 🌙" * (number % 200)
    return [integers, floats, {"text": text, "empty": {}, "deep": [[[[]]]]}, None, True, False]


async def dialogue(socket, times):
    client = Client(socket)
    [login] = await client.request("login", [{"user": "admin", "password": "admin"}])
    key = {"authkey": login["authkey"]}
    await client.notify("subscribe", TIME, [key])
    while len(client.heard) < times:
        # Nobody broadcasts there; it is no error to ask.
        await client.notify("subscribe", BLOB, [key])
        params = [key, *forms(client.requests)]
        result = await client.request("echo", params)
        # Equal values of another kind, such as 1 and 1.0, look different.
        assert plain(result) == plain(params), f"sent {params}, received {result}"
        await asyncio.sleep(PAUSE_S)
    await client.notify("logout", 3, [key])
    try:
        while True:
            await client.receive()
    except ConnectionClosedOK:
        assert socket.close_code == 1000, socket.close_code
    return client


def plain(value):
    """A text by which values can be compared, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True)


async def main():
    url, times = sys.argv[1], int(sys.argv[2])
    async with connect(url, compression=None) as socket:
        client = await dialogue(socket, times)
    counts = {
        "requests": client.requests,
        "notifications": client.notifications,
        "heard": len(client.heard),
        "seconds": round(client.heard[-1] - client.heard[0], 1),
    }
    print(json.dumps(counts))


asyncio.run(main())
