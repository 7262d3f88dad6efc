"""Runs one file of tests against a fresh server, in a network that has nothing yet: `inside.py REPORT FILE`."""

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile

SET_INTERFACE_FLAGS = 0x8914
UP_AND_RUNNING = 0x41
TEST_SECONDS = 180


def main():
    report, name = sys.argv[1:]
    raise_loopback()
    with tempfile.TemporaryDirectory() as directory, open(os.path.join(directory, "log"), "w") as log:
        server = subprocess.Popen(
            [os.environ.pop("ORRERY_BIN"), "emulator", "--memory"], cwd=directory, stdout=subprocess.PIPE, stderr=log
        )
        try:
            if not server.stdout.readline():
                sys.exit("the server did not become ready")
            return subprocess.run(tests(report, name)).returncode
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def tests(report, name):
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "-W", "ignore"]
    return command + ["--timeout", str(TEST_SECONDS), "--junitxml", report, name]


def raise_loopback():
    request = struct.pack("16sh14x", b"lo", UP_AND_RUNNING)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_INTERFACE_FLAGS, request)


if __name__ == "__main__":
    sys.exit(main())
