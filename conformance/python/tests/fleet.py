"""The account of three regions: its clients, its administration, and who answered what."""

import contextlib
import json
import os
import re
import threading
import urllib.parse
import urllib.request

from azure.cosmos import CosmosClient, PartitionKey

from support import KEY, administer, unique, wait_until

ENDPOINT = os.environ["ORRERY_REGIONS_ENDPOINT"]
NAME = os.environ["ORRERY_REGIONS_NAME"]
REGIONS = json.loads(os.environ["ORRERY_REGIONS"])
WRITER, NEXT, LAST = REGIONS
# Not one of them, for those who add one.
ADDED = "Japan East"


def prefer(region, endpoint=ENDPOINT):
    """A client that prefers this region, then the others in their order."""
    return CosmosClient(endpoint, KEY, preferred_locations=[region, *(name for name in REGIONS if name != region)])


def manage(method, path, body=None, query=""):
    return administer(method, "_orrery/v1/" + urllib.parse.quote(path), query, body=body, endpoint=ENDPOINT)


def forget(region):
    """Removes a region unless it is gone already."""
    if any(known["name"] == region for known in manage("GET", "regions")["regions"]):
        manage("DELETE", f"regions/{region}")


@contextlib.contextmanager
def removed(region):
    """The region is being removed, and tells its clients to go elsewhere; afterwards it is gone."""
    removal = threading.Thread(target=manage, args=("DELETE", f"regions/{region}", None, "?drainMs=2000"))
    removal.start()
    states = lambda: [known["state"] for known in manage("GET", "regions")["regions"] if known["name"] == region]
    wait_until(lambda: states() == ["draining"])
    try:
        yield
    finally:
        removal.join()


def wait_level():
    """Until every region that is online has everything."""
    wait_until(lambda: all(region["lagTransactionsTotal"] == 0 for region in manage("GET", "regions")["regions"]))


@contextlib.contextmanager
def link(to, **settings):
    """The way from the write region to another behaves like this for a while."""
    manage("PUT", "links", {"from": WRITER, "to": to, **settings})
    try:
        yield
    finally:
        manage("PUT", "links", {"from": WRITER, "to": to})


def answered(operation, regions):
    """How many requests each region has answered with success, by its own count."""
    pattern = re.compile(rf'orrery_requests_total{{operation="{operation}",status="2\d\d"}} (\d+)')
    counts = {}
    for region in regions:
        text = urllib.request.urlopen(REGIONS[region] + "metrics", timeout=10).read().decode()
        counts[region] = sum(map(int, pattern.findall(text)))
    return counts


@contextlib.contextmanager
def answers(operation, expected):
    """Expects the calls inside to be answered so many times by each of these regions."""
    before = answered(operation, expected)
    yield
    after = answered(operation, expected)
    assert {region: after[region] - before[region] for region in expected} == expected


@contextlib.contextmanager
def fresh_container():
    with CosmosClient(ENDPOINT, KEY) as client:
        database = client.create_database(unique("db"))
        try:
            container = database.create_container("items", PartitionKey("/pk"))
            wait_level()
            yield container
        finally:
            client.delete_database(database)


def seen_by(client, container):
    return client.get_database_client(container.container_link.split("/")[1]).get_container_client(container.id)
