"""The account of three regions: its clients, its administration, and who answered what."""

import contextlib
import json
import os
import re
import urllib.parse
import urllib.request

from azure.cosmos import CosmosClient, PartitionKey

from support import KEY, administer, unique, wait_until

ENDPOINT = os.environ["ORRERY_REGIONS_ENDPOINT"]
REGIONS = json.loads(os.environ["ORRERY_REGIONS"])
WRITER, NEXT, LAST = REGIONS


def prefer(region):
    """A client that prefers this region, then the others in their order."""
    return CosmosClient(ENDPOINT, KEY, preferred_locations=[region, *(name for name in REGIONS if name != region)])


def manage(method, path, body=None):
    return administer(method, "_orrery/v1/" + urllib.parse.quote(path), body=body, endpoint=ENDPOINT)


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
