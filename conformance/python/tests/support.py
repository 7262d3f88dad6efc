"""What the tests share: where the server is, how a refusal looks, and the administration calls."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import json
import os
import time
import urllib.parse
import urllib.request
import uuid

import pytest
from azure.core.exceptions import HttpResponseError

ENDPOINT = os.environ["ORRERY_ENDPOINT"]
KEY = os.environ["ORRERY_KEY"]
READ_ONLY_KEY = os.environ["ORRERY_READ_ONLY_KEY"]
CA = os.environ["ORRERY_CA"]


def unique(prefix):
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def refused(status, substatus=None):
    """Expects the calls inside to be refused with this status; gives the error to look at."""
    with pytest.raises(HttpResponseError) as caught:
        yield caught
    error = caught.value
    assert error.status_code == status, f"expected {status}, got {error.status_code}: {error.message}"
    if substatus is not None:
        assert error.sub_status == substatus


class Watcher:
    """Give it as `raw_response_hook`: remembers the status and headers of the last answer."""

    status = None
    headers = None
    body = None

    def __call__(self, response):
        self.status = response.http_response.status_code
        self.headers = response.http_response.headers
        self.body = response.http_response.body()


def wait_until(condition, seconds=15):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")


def user_part(item):
    """The item without what the server adds."""
    return {name: value for name, value in item.items() if not name.startswith("_")}


def all_ids(container):
    return sorted(item["id"] for item in container.read_all_items())


def administer(method, path, query="", body=None, endpoint=ENDPOINT):
    """Signed like any request: empty resource type, the path as the link."""
    date = email.utils.formatdate(usegmt=True)
    text = f"{method.lower()}\n\n{path}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    token = urllib.parse.quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")
    request = urllib.request.Request(
        endpoint + path + query,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"authorization": token, "x-ms-date": date, "x-ms-version": "2020-07-15"},
    )
    return json.load(urllib.request.urlopen(request, timeout=30))


def rotate_secondary_key():
    """The new secondary key; the one before is worth nothing from now on."""
    return administer("POST", "_orrery/v1/keys/secondary/rotate")["key"]


def partitions(database_id, container_id):
    """From left to right."""
    query = "?" + urllib.parse.urlencode({"database": database_id, "container": container_id})
    listed = administer("GET", "_orrery/v1/partitions", query)["partitions"]
    return sorted(listed, key=lambda partition: partition["minInclusive"])


def split(database_id, container_id, index):
    """Splits one partition, counted from the left."""
    partition = partitions(database_id, container_id)[index]["partition"]
    form = {"database": database_id, "container": container_id, "partition": partition}
    administer("POST", "_orrery/v1/partitions/split", body=form)


def merge(database_id, container_id, index):
    """Makes a partition, counted from the left, and its right neighbour one."""
    pair = [one["partition"] for one in partitions(database_id, container_id)[index : index + 2]]
    form = {"database": database_id, "container": container_id, "partitions": pair}
    administer("POST", "_orrery/v1/partitions/merge", body=form)


def split_all(database_id, container_id):
    """Splits every partition the container has now."""
    before = partitions(database_id, container_id)
    for partition in before:
        form = {"database": database_id, "container": container_id, "partition": partition["partition"]}
        administer("POST", "_orrery/v1/partitions/split", body=form)
    after = partitions(database_id, container_id)
    assert len(after) == 2 * len(before)
