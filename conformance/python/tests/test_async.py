"""A few scenarios once more through the SDK's asynchronous client; a scenario passes when both forms do."""

import asyncio
import contextlib

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosBatchOperationError

from support import ENDPOINT, KEY, refused, unique


@contextlib.asynccontextmanager
async def fresh_container():
    async with CosmosClient(ENDPOINT, KEY) as client:
        database = await client.create_database(unique("db"))
        try:
            yield await database.create_container("items", PartitionKey("/pk"))
        finally:
            await client.delete_database(database)


def test_item_create_and_read():
    async def scenario():
        async with fresh_container() as container:
            created = await container.create_item({"id": "1", "pk": "a", "n": 1})
            assert created["_etag"] == created.get_response_headers()["etag"]
            assert await container.read_item("1", "a") == created

    asyncio.run(scenario())


def test_item_create_twice_is_409():
    async def scenario():
        async with fresh_container() as container:
            await container.create_item({"id": "1", "pk": "a"})
            with refused(409):
                await container.create_item({"id": "1", "pk": "a"})

    asyncio.run(scenario())


def test_item_read_feed_pages():
    async def scenario():
        async with fresh_container() as container:
            names = sorted(f"{number:02}" for number in range(35))
            await asyncio.gather(*(container.create_item({"id": name, "pk": f"key {name}"}) for name in names))
            pages = []
            async for page in container.read_all_items(max_item_count=10).by_page():
                pages.append([item["id"] async for item in page])
            assert sorted(sum(pages, [])) == names
            assert len(pages) >= 4 and all(len(page) <= 10 for page in pages)

    asyncio.run(scenario())


def test_item_concurrent_creates_one_wins():
    async def scenario():
        async with fresh_container() as container:
            creates = (container.create_item({"id": "1", "pk": "a", "n": number}) for number in range(32))
            outcomes = await asyncio.gather(*creates, return_exceptions=True)
            refusals = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
            assert [refusal.status_code for refusal in refusals] == [409] * 31

    asyncio.run(scenario())


def test_batch_is_atomic():
    async def scenario():
        async with fresh_container() as container:
            await container.create_item({"id": "there", "pk": "a"})
            with pytest.raises(CosmosBatchOperationError) as caught:
                creates = [("create", ({"id": name, "pk": "a"},)) for name in ("new", "there")]
                await container.execute_item_batch(creates, "a")
            assert [answer["statusCode"] for answer in caught.value.operation_responses] == [424, 409]
            with refused(404):
                await container.read_item("new", "a")

    asyncio.run(scenario())


def test_patch_increment():
    async def scenario():
        async with fresh_container() as container:
            await container.create_item({"id": "1", "pk": "a", "n": 1})
            increment = [{"op": "incr", "path": "/n", "value": 1}]
            await asyncio.gather(*(container.patch_item("1", "a", increment) for _ in range(20)))
            assert (await container.read_item("1", "a"))["n"] == 21

    asyncio.run(scenario())
