"""An account of three regions: who answers, and what a change of the write region shows. One test after the other."""

import itertools
import json
import os
import socket
import threading
import time
import urllib.parse

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError

from fleet import ADDED, ENDPOINT, LAST, NAME, NEXT, REGIONS, WRITER, answered, answers, forget, fresh_container, link, manage, prefer, removed, seen_by, wait_level
from support import wait_until

PATIENCE_SECONDS = 30


@pytest.fixture
def container():
    with fresh_container() as container:
        yield container


def fill(container, names):
    for name in names:
        container.create_item({"id": name, "pk": f"key {name}"})


def ids_seen_in(region, container):
    with prefer(region) as client:
        found = seen_by(client, container).query_items("SELECT VALUE c.id FROM c", enable_cross_partition_query=True)
        return sorted(found)


def only(region, count):
    return {name: count if name == region else 0 for name in REGIONS}


def test_region_reads_in_preferred(container):
    names = [str(number) for number in range(10)]
    fill(container, names)
    wait_level()
    for region in REGIONS:
        with prefer(region) as client, answers("read_item", only(region, len(names))):
            for name in names:
                assert seen_by(client, container).read_item(name, f"key {name}")["id"] == name


def test_region_writes_in_write_region(container):
    for region in REGIONS:
        with prefer(region) as client, answers("create_item", only(WRITER, 5)):
            fill(seen_by(client, container), [f"{region} {number}" for number in range(5)])


def check_session(container, **lag):
    with prefer(LAST) as client:
        here = seen_by(client, container)
        here.create_item({"id": "1", "pk": "a", "n": 0})
        wait_level()
        with link(LAST, **lag):
            for n in range(1, 4):
                here.replace_item("1", {"id": "1", "pk": "a", "n": n})
                assert here.read_item("1", "a")["n"] == n


def test_region_session(container):
    with answers("read_item", only(LAST, 3)):
        check_session(container, latencyMs=100)


def test_region_session_cut_off(container):
    with answers("read_item", only(WRITER, 3)):
        check_session(container, paused=True)


def test_region_down(container):
    fill(container, ["1"])
    wait_level()
    with prefer(LAST) as client:
        here = seen_by(client, container)
        with answers("read_item", only(LAST, 1)):
            here.read_item("1", "key 1")
        manage("POST", f"regions/{LAST}/stop", {"mode": "unavailable"})
        try:
            with answers("read_item", {WRITER: 5, NEXT: 0}):
                for _ in range(5):
                    assert here.read_item("1", "key 1")["id"] == "1"
        finally:
            manage("POST", f"regions/{LAST}/start")


class Load:
    """Creates items, and reads each back, until told to stop; notes what was acknowledged and what went wrong.

    Each worker also counts in an item of its own, and must never be shown less than it has written.
    """

    N_WORKERS = 4

    def __init__(self, container):
        self.container = container
        self.acknowledged = []
        self.errors = []
        self.stopped = threading.Event()
        self.workers = [threading.Thread(target=self.work, args=(number,)) for number in range(self.N_WORKERS)]

    def __enter__(self):
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for worker in self.workers:
            worker.join()

    def work(self, worker):
        number = 0
        while not self.stopped.is_set():
            name = f"{worker}-{number}"
            number += 1
            try:
                self.container.create_item({"id": name, "pk": f"key {name}"})
                self.acknowledged.append(name)
                self.container.read_item(name, f"key {name}")
                self.count(worker, number)
            except Exception as error:
                self.errors.append(f"{name}: {error}")

    def count(self, worker, number):
        name = f"count {worker}"
        self.container.upsert_item({"id": name, "pk": f"key {name}", "n": number})
        seen = self.container.read_item(name, f"key {name}")["n"]
        if seen != number:
            self.errors.append(f"{name}: wrote {number}, saw {seen}")


def next_writers():
    """There and back, twice; in a soak every 20 seconds for an hour, or for as many seconds as ORRERY_SOAK says."""
    soak = os.environ.get("ORRERY_SOAK")
    if soak is None:
        yield from (NEXT, WRITER) * 2
        return
    seconds = 3600 if soak == "1" else float(soak)
    started = time.monotonic()
    for round, (there, back) in enumerate(itertools.repeat((NEXT, WRITER))):
        for half, writer in enumerate((there, back)):
            wait_until(lambda: time.monotonic() >= started + 20 * (2 * round + half), PATIENCE_SECONDS)
            yield writer
        if time.monotonic() >= started + seconds:
            return


def test_region_planned_failover(container):
    with prefer(LAST) as client:
        with Load(seen_by(client, container)) as load:
            wait_until(lambda: len(load.acknowledged) >= 40, PATIENCE_SECONDS)
            for writer in next_writers():
                before = answered("create_item", [writer])[writer]
                manage("POST", "failover", {"region": writer})
                wait_until(lambda: answered("create_item", [writer])[writer] >= before + 40, PATIENCE_SECONDS)
        assert load.errors == []
    wait_level()
    counts = [f"count {worker}" for worker in range(Load.N_WORKERS)]
    for region in REGIONS:
        assert ids_seen_in(region, container) == sorted(load.acknowledged + counts)


def test_region_forced_failover(container):
    kept, lost, later = ([f"{kind} {number}" for number in range(10)] for kind in ("kept", "lost", "later"))
    with prefer(LAST) as client:
        here = seen_by(client, container)
        fill(here, kept)
        wait_level()
        with link(NEXT, cut=True), link(LAST, cut=True):
            fill(here, lost)
            assert manage("POST", f"regions/{WRITER}/offline")["lostTransactions"] == len(lost)
        for name in later:
            insist(lambda: here.upsert_item({"id": name, "pk": f"key {name}"}))
    wait_level()
    assert ids_seen_in(NEXT, container) == ids_seen_in(LAST, container) == sorted(kept + later)
    manage("POST", f"regions/{WRITER}/online")
    manage("POST", "failover", {"region": WRITER})
    assert ids_seen_in(WRITER, container) == sorted(kept + later)


def read_five(container):
    for _ in range(5):
        assert container.read_item("1", "key 1")["id"] == "1"


def test_region_added_and_removed(container):
    fill(container, ["1"])
    manage("POST", "regions", {"region": ADDED})
    try:
        with prefer(ADDED) as client:
            here = seen_by(client, container)
            with answers("read_item", only(ADDED, 0)):
                read_five(here)
            before = answered("read_item", REGIONS)
            with removed(ADDED):
                read_five(here)
            read_five(here)
            # The SDK spreads what it tries again over the others.
            assert sum(answered("read_item", REGIONS).values()) == sum(before.values()) + 10
    finally:
        forget(ADDED)


def test_region_found_by_name(container, monkeypatch):
    fill(container, ["1"])
    wait_level()
    resolve = socket.getaddrinfo

    def resolve_regions_only(host, *rest, **more):
        if host == NAME:
            raise socket.gaierror(f"{host} is not known")
        is_region = host.endswith(NAME.partition(".")[2])
        return resolve("localhost" if is_region else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_regions_only)
    by_name = f"http://{NAME}:{urllib.parse.urlparse(ENDPOINT).port}/"
    with prefer(LAST, by_name) as client, answers("read_item", only(LAST, 1)):
        assert seen_by(client, container).read_item("1", "key 1")["id"] == "1"


def test_region_conflict_feed(container):
    lost = [f"lost {number}" for number in range(3)]
    with prefer(NEXT) as client:
        here = seen_by(client, container)
        with link(NEXT, cut=True), link(LAST, cut=True):
            fill(here, lost)
            manage("POST", f"regions/{WRITER}/offline")
        manage("POST", f"regions/{WRITER}/online")
        conflicts = list(here.list_conflicts())
        items = [json.loads(conflict["content"]) for conflict in conflicts]
        assert sorted(item["id"] for item in items) == lost
        assert {conflict["operationType"] for conflict in conflicts} == {"create"}
        assert list(here.query_items("SELECT * FROM c", enable_cross_partition_query=True)) == []
        for conflict, item in zip(conflicts, items):
            assert here.get_conflict(conflict, item["pk"])["content"] == conflict["content"]
            here.delete_conflict(conflict, item["pk"])
        assert list(here.list_conflicts()) == []
    manage("POST", "failover", {"region": WRITER})


def insist(call):
    """Tries again as an application would after a failover it was not spared."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except CosmosHttpResponseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
