"""The data of the query scenarios: 120 items of 40 keys in a container of eight physical partitions. See ../../README.md."""

from concurrent.futures import ThreadPoolExecutor

from azure.cosmos import PartitionKey

from support import partitions, split_all, unique

N_ITEMS = 120
N_PARTITIONS = 8

INDEXING = {
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": "/vector/*"}],
    "compositeIndexes": [[{"path": "/tie", "order": "ascending"}, {"path": "/n", "order": "descending"}]],
    "vectorIndexes": [{"path": "/vector", "type": "flat"}],
    "fullTextIndexes": [{"path": "/text"}],
}
VECTORS = {
    "vectorEmbeddings": [
        {"path": "/vector", "dataType": "float32", "dimensions": 2, "distanceFunction": "euclidean"},
    ]
}
TEXTS = {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/text", "language": "en-US"}]}


def make_item(i):
    n, rank = i * 37 % N_ITEMS, comet_rank(i)
    item = {"id": str(i), "pk": f"key {i % 40}", "n": n, "tie": i % 4, "family": f"family {i % 5}"}
    item["text"] = " ".join(["comet"] * rank + ["dust"] * (20 - rank))
    item["vector"] = [1000 + rank * 7 % 11 if rank else n, 1]
    kinds = {1: None, 2: i % 4 == 2, 3: n, 4: f"text {n:03}"}
    if i % 5 in kinds:
        item["mixed"] = kinds[i % 5]
    return item


def comet_rank(i):
    """Ten items speak of comets: the first once, the last ten times."""
    return 0 if i % 12 else i // 12 + 1


def id_of_rank(rank):
    return str((rank - 1) * 12)


def create(database):
    container = database.create_container(
        unique("items"),
        PartitionKey("/pk"),
        indexing_policy=INDEXING,
        vector_embedding_policy=VECTORS,
        full_text_policy=TEXTS,
        offer_throughput=10_000 * N_PARTITIONS,
    )
    assert len(partitions(database.id, container.id)) == N_PARTITIONS
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(container.create_item, map(make_item, range(N_ITEMS))))
    return container


class Catalogue:
    """The container, filled, and its queries before, during and after a split of all partitions."""

    def __init__(self, database):
        self.database = database
        self.container = create(database)
        self.items = [make_item(i) for i in range(N_ITEMS)]

    def split(self):
        split_all(self.database.id, self.container.id)

    def pages(self, query, page_size, continuation=None):
        found = self.container.query_items(query, enable_cross_partition_query=True, max_item_count=page_size)
        return found.by_page(continuation)

    def rows(self, query, page_size=10):
        return [row for page in self.pages(query, page_size) for row in page]

    def rows_across_split(self, query, page_size=10):
        """The partitions split when one page has been read."""
        pages = self.pages(query, page_size)
        first = list(next(pages))
        assert len(first) <= page_size
        self.split()
        return first + [row for page in pages for row in page]

    def check(self, query, right, page_size=10):
        """Looks at the rows of a query before, during and after a split."""
        for rows in (self.rows, self.rows_across_split, self.rows):
            right(rows(query, page_size))
