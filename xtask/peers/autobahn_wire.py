"""What the suite's runners need beside the suite: the end of a run, and TLS for one."""

import asyncio
import contextlib
import ssl
import subprocess


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


def any_server():
    """TLS of a client that trusts every server: a test server signs for itself."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
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
