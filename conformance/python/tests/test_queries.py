"""Queries over eight partitions, all of which split between two pages."""

import pytest

from catalogue import N_ITEMS, Catalogue, id_of_rank


@pytest.fixture
def catalogue(database):
    return Catalogue(database)


def equal(expected):
    def right(rows):
        assert rows == expected

    return right


def equal_in_any_order(expected):
    def right(rows):
        assert sorted(rows, key=repr) == sorted(expected, key=repr)

    return right


def test_query_scan(catalogue):
    catalogue.check("SELECT VALUE c.n FROM c", equal_in_any_order(range(N_ITEMS)))


def test_query_order_by(catalogue):
    catalogue.check("SELECT VALUE c.n FROM c ORDER BY c.n", equal(list(range(N_ITEMS))))
    catalogue.check("SELECT VALUE c.n FROM c WHERE c.n < 50 ORDER BY c.n DESC", equal(list(range(49, -1, -1))))


def check_complete_by_tie(catalogue, rows):
    assert [row["tie"] for row in rows] == sorted(item["tie"] for item in catalogue.items)
    assert sorted(row["n"] for row in rows) == list(range(N_ITEMS))


def test_query_order_by_ties(catalogue):
    query = "SELECT c.tie, c.n FROM c ORDER BY c.tie"
    catalogue.check(query, lambda rows: check_complete_by_tie(catalogue, rows), page_size=7)


def test_query_order_by_two(catalogue):
    expected = sorted(([item["tie"], item["n"]] for item in catalogue.items), key=lambda pair: (pair[0], -pair[1]))
    catalogue.check("SELECT VALUE [c.tie, c.n] FROM c ORDER BY c.tie ASC, c.n DESC", equal(expected))


def place(value):
    kinds = [type(None), bool, int, str]
    return (kinds.index(type(value)) + 1, 0 if value is None else value)


def test_query_order_by_types(catalogue):
    def right(rows):
        assert sorted(row["n"] for row in rows) == list(range(N_ITEMS))
        places = [place(row["mixed"]) if "mixed" in row else (0, 0) for row in rows]
        assert places == sorted(places)
        assert {kind for kind, _ in places} == {0, 1, 2, 3, 4}

    catalogue.check("SELECT c.n, c.mixed FROM c ORDER BY c.mixed", right)


def test_query_top(catalogue):
    catalogue.check("SELECT TOP 25 VALUE c.n FROM c ORDER BY c.n DESC", equal(list(range(119, 94, -1))))


def test_query_offset_limit(catalogue):
    catalogue.check("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 15 LIMIT 30", equal(list(range(15, 45))))

    def right(rows):
        assert len(rows) == len(set(rows)) == 50

    catalogue.check("SELECT VALUE c.n FROM c OFFSET 5 LIMIT 50", right)


def test_query_distinct(catalogue):
    pairs = [{"tie": tie, "family": f"family {number}"} for tie in range(4) for number in range(5)]
    catalogue.check("SELECT DISTINCT c.tie, c.family FROM c", equal_in_any_order(pairs), page_size=6)
    families = [f"family {number}" for number in range(5)]
    catalogue.check("SELECT DISTINCT VALUE c.family FROM c ORDER BY c.family", equal(families), page_size=2)


def test_query_aggregates(catalogue):
    aggregates = {"COUNT(1)": 120, "SUM(c.n)": 7140, "AVG(c.n)": 59.5, "MIN(c.n)": 0, "MAX(c.n)": 119}
    for phase in ("before", "after"):
        for aggregate, expected in aggregates.items():
            assert catalogue.rows(f"SELECT VALUE {aggregate} FROM c") == [expected], phase
        both = catalogue.rows("SELECT COUNT(1) AS total, MAX(c.n) AS most FROM c WHERE c.n < 50")
        assert both == [{"total": 50, "most": 49}], phase
        if phase == "before":
            catalogue.split()


def test_query_group_by(catalogue):
    def summary(family):
        members = [item["n"] for item in catalogue.items if item["family"] == family]
        total = sum(members)
        return {
            "family": family, "size": 24, "total": total, "mean": total / 24, "least": min(members), "most": max(members),
        }

    query = (
        "SELECT c.family, COUNT(1) AS size, SUM(c.n) AS total, AVG(c.n) AS mean, MIN(c.n) AS least, MAX(c.n) AS most "
        "FROM c GROUP BY c.family"
    )
    expected = [summary(f"family {number}") for number in range(5)]
    catalogue.check(query, equal_in_any_order(expected), page_size=2)


def test_query_vector(catalogue):
    expected = [{"id": id_of_rank(rank)} for rank in (3, 6, 9, 1, 4, 7, 10, 2, 5, 8)]
    query = "SELECT TOP 10 c.id FROM c ORDER BY VectorDistance(c.vector, [2000, 1])"
    catalogue.check(query, equal(expected), page_size=4)


def test_query_full_text(catalogue):
    expected = [{"id": id_of_rank(rank)} for rank in range(10, 0, -1)]
    query = "SELECT TOP 10 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'comet')"
    catalogue.check(query, equal(expected), page_size=4)


def test_query_hybrid(catalogue):
    expected = [{"id": id_of_rank(rank)} for rank in (9, 6, 10, 3, 7, 4, 8, 1, 5, 2)]
    query = (
        "SELECT TOP 10 c.id FROM c "
        "ORDER BY RANK RRF(FullTextScore(c.text, 'comet'), VectorDistance(c.vector, [2000, 1]))"
    )
    catalogue.check(query, equal(expected), page_size=4)


def resumed_after_split(catalogue, query):
    pages = catalogue.pages(query, 25)
    rows = list(next(pages))
    continuation = pages.continuation_token
    assert len(rows) == 25
    catalogue.split()
    return rows + [row for page in catalogue.pages(query, 25, continuation) for row in page]


def test_query_resume_after_split(catalogue):
    rows = resumed_after_split(catalogue, "SELECT VALUE c.n FROM c ORDER BY c.n")
    assert rows == list(range(N_ITEMS))


def test_query_resume_ties_after_split(catalogue):
    check_complete_by_tie(catalogue, resumed_after_split(catalogue, "SELECT c.tie, c.n FROM c ORDER BY c.tie"))
