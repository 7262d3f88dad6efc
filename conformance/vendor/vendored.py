"""What the suites of an SDK's own tests share: an account to run against, what is expected to fail, and the verdict."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import tomllib
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
CACHE = HERE / "target"  # What is fetched, copied and built. Git ignores it.
READY_SECONDS = 60
STOP_SECONDS = 15


class Account:
    """An account that answers, with what a test may have to know about it."""

    def __init__(self, endpoint, key, scratch):
        self.port = urllib.parse.urlsplit(endpoint).port
        self.plain = f"http://localhost:{self.port}/"
        self.key = key
        self.ca = scratch / "ca.pem"
        self.ca.write_bytes(urllib.request.urlopen(self.plain + "_orrery/ca.pem", timeout=10).read())

    def document(self, host):
        """The account's own document, as a client sees it that comes to this host by TLS."""
        trust = ssl.create_default_context(cafile=str(self.ca))
        request = self.signed("GET", f"https://{host}:{self.port}/", "", "", "")
        return json.load(urllib.request.urlopen(request, timeout=10, context=trust))

    def get(self, path, resource_type, link):
        return json.load(urllib.request.urlopen(self.signed("GET", self.plain, path, resource_type, link), timeout=30))

    def administer(self, method, path, body=None):
        link = path.split("?")[0]
        return json.load(urllib.request.urlopen(self.signed(method, self.plain, path, "", link, body), timeout=60))

    def signed(self, method, base, path, resource_type, link, body=None):
        date = email.utils.formatdate(usegmt=True)
        text = f"{method.lower()}\n{resource_type}\n{link}\n{date.lower()}\n\n"
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        token = urllib.parse.quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")
        headers = {"authorization": token, "x-ms-date": date, "x-ms-version": "2020-07-15", "content-type": "application/json"}
        data = None if method == "GET" else json.dumps(body or {}).encode()
        return urllib.request.Request(base + path, method=method, data=data, headers=headers)


@contextlib.contextmanager
def account(*options):
    """The account named by ORRERY_ENDPOINT and ORRERY_KEY, or else one of a fresh server with these options."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory)
        if "ORRERY_ENDPOINT" in os.environ:
            yield Account(os.environ["ORRERY_ENDPOINT"], os.environ["ORRERY_KEY"], scratch)
            return
        with server(scratch, *options) as ready:
            yield Account(ready["endpoint"], ready["key"], scratch)


@contextlib.contextmanager
def server(scratch, *options):
    binary = pathlib.Path(os.environ.get("ORRERY_BIN", HERE.parent.parent / "target" / "debug" / "orrery")).resolve()
    if not binary.exists():
        sys.exit(f"there is no server at {binary}: build it with `cargo build` or set ORRERY_BIN")
    # The server takes any ORRERY_ variable for a setting, and the ones of its caller are not meant for it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ORRERY_")}
    command = [str(binary), "emulator", "--memory", "--port", "0", *options]
    with (scratch / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=scratch, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield first_line(process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def first_line(process):
    lines = []
    reader = threading.Thread(target=lambda: lines.append(process.stdout.readline()), daemon=True)
    reader.start()
    reader.join(READY_SECONDS)
    if not lines or not lines[0]:
        sys.exit("the server did not become ready")
    return json.loads(lines[0])["accounts"][0]


def fresh_copy(source, target):
    """A copy of a package that may be changed, in place of the last one. Unchanged files keep their times, so that builds do."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)


def edit(path, *replacements):
    """Replaces texts in a file of a copy. Each must be there: a new version of a package may want other edits."""
    text = path.read_text()
    for old, new in replacements:
        if old not in text:
            sys.exit(f"{path} does not have {old!r}")
        text = text.replace(old, new)
    status = path.stat()
    path.write_text(text)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def verdict(title, outcomes, expectations, show):
    """Compares outcomes (True: passed, by test) with the failures that are expected; prints, and says whether all is as expected.

    `show` gives the output of a test that failed.
    """
    expected = tomllib.loads(expectations.read_text()).get("expected", {})
    passed = {name for name, ok in outcomes.items() if ok}
    failed = outcomes.keys() - passed
    surprises = sorted(failed - expected.keys())
    for name in surprises:
        print(f"--- {name} failed:\n{show(name)}\n")
    for name in sorted(passed & expected.keys()):
        print(f"--- {name} passed, and was expected to fail: {expected[name]}")
    n_expected = len(failed & expected.keys())
    print(f"{title}: {len(passed)} passed, {n_expected} failed as expected, {len(surprises)} failed unexpectedly")
    return not surprises and not passed & expected.keys()


def unheard_of(outcomes, expectations):
    """Names that are expected to fail and were not run at all: the list is out of date."""
    names = tomllib.loads(expectations.read_text()).get("expected", {}).keys() - outcomes
    for name in sorted(names):
        print(f"--- {name} is expected to fail, and there is no such test")
    return bool(names)
