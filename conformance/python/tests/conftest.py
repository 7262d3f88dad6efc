"""Fixtures, and the results file: one entry per scenario, named after its test."""

import json
import os

import azure.cosmos
import pytest
from azure.cosmos import CosmosClient, PartitionKey

from support import ENDPOINT, KEY, unique

RESULTS = {}


@pytest.fixture(scope="session")
def client():
    with CosmosClient(ENDPOINT, KEY) as client:
        yield client


@pytest.fixture
def database(client):
    database = client.create_database(unique("db"))
    yield database
    client.delete_database(database)


@pytest.fixture
def container(database):
    return database.create_container(unique("items"), PartitionKey("/pk"))


def scenario_of(nodeid):
    """`tests/test_items.py::test_item_large[async]` is about `item-large`."""
    return nodeid.split("::")[-1].split("[")[0].removeprefix("test_").replace("_", "-")


def pytest_runtest_logreport(report):
    name = scenario_of(report.nodeid)
    if report.failed:
        RESULTS[name] = "fail: " + first_line(report)
    elif report.skipped:
        RESULTS[name] = "skip: " + report.longrepr[2].removeprefix("Skipped: ")
    elif report.when == "call":
        RESULTS.setdefault(name, "pass")


def first_line(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return text.splitlines()[0][:300]


def pytest_sessionfinish():
    path = os.environ.get("ORRERY_RESULTS")
    if path:
        outcome = {"language": "python", "sdk": "azure-cosmos", "version": azure.cosmos.__version__, "results": RESULTS}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(outcome, file, indent=1)
