package conformance

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// Queries over eight partitions, all of which split between two pages. The SDK leaves all of the work to the server.
var queryScenarios = scenarios{
	"query-scan":                    queryScan,
	"query-order-by":                queryOrderBy,
	"query-order-by-ties":           queryOrderByTies,
	"query-order-by-two":            queryOrderByTwo,
	"query-order-by-types":          queryOrderByTypes,
	"query-top":                     queryTop,
	"query-offset-limit":            queryOffsetLimit,
	"query-distinct":                queryDistinct,
	"query-aggregates":              queryAggregates,
	"query-group-by":                queryGroupBy,
	"query-vector":                  queryVector,
	"query-full-text":               queryFullText,
	"query-hybrid":                  queryHybrid,
	"query-resume-after-split":      queryResumeAfterSplit,
	"query-resume-ties-after-split": queryResumeTiesAfterSplit,
}

// numbers from the first up or down to the last, as texts.
func numbers(first, last int) []string {
	texts := []string{strconv.Itoa(first)}
	for n := first; n != last; {
		if n < last {
			n++
		} else {
			n--
		}
		texts = append(texts, strconv.Itoa(n))
	}
	return texts
}

func queryScan(s *scene) {
	newCatalogue(s).expectInAnyOrder("SELECT VALUE c.n FROM c", 10, numbers(0, catalogueSize-1))
}

func queryOrderBy(s *scene) {
	c := newCatalogue(s)
	c.expect("SELECT VALUE c.n FROM c ORDER BY c.n", 10, numbers(0, catalogueSize-1))
	c.expect("SELECT VALUE c.n FROM c WHERE c.n < 50 ORDER BY c.n DESC", 10, numbers(49, 0))
}

// completeByTie wants every item once, sorted by tie.
func (c *catalogue) completeByTie(rows []string) {
	c.Helper()
	c.check(len(rows) == len(c.items), "%d rows of %d items", len(rows), len(c.items))
	c.check(slices.IsSorted(firstColumn(rows)), "not sorted: %v", rows)
	var expected []string
	for _, item := range c.items {
		expected = append(expected, fmt.Sprintf("[%d,%d]", item["tie"], item["n"]))
	}
	slices.Sort(expected)
	sorted := slices.Sorted(slices.Values(rows))
	c.check(slices.Equal(sorted, expected), "expected %v, got %v", expected, sorted)
}

func firstColumn(rows []string) []string {
	var column []string
	for _, row := range rows {
		column = append(column, row[:2])
	}
	return column
}

func queryOrderByTies(s *scene) {
	c := newCatalogue(s)
	c.look("SELECT VALUE [c.tie, c.n] FROM c ORDER BY c.tie", 7, c.completeByTie)
}

func queryOrderByTwo(s *scene) {
	c := newCatalogue(s)
	slices.SortFunc(c.items, func(one, other object) int {
		if by := one["tie"].(int) - other["tie"].(int); by != 0 {
			return by
		}
		return other["n"].(int) - one["n"].(int)
	})
	var expected []string
	for _, item := range c.items {
		expected = append(expected, fmt.Sprintf("[%d,%d]", item["tie"], item["n"]))
	}
	c.expect("SELECT VALUE [c.tie, c.n] FROM c ORDER BY c.tie ASC, c.n DESC", 10, expected)
}

func queryOrderByTypes(s *scene) {
	c := newCatalogue(s)
	var byKind [5][]string
	for i, item := range c.items {
		row := "{}"
		if mixed, present := item["mixed"]; present {
			row = string(s.encode(object{"mixed": mixed}))
		}
		byKind[i%5] = append(byKind[i%5], row)
	}
	slices.Sort(byKind[2])
	slices.SortFunc(byKind[3], func(one, other string) int {
		if by := len(one) - len(other); by != 0 {
			return by
		}
		return slices.Compare([]byte(one), []byte(other))
	})
	slices.Sort(byKind[4])
	c.expect("SELECT c.mixed FROM c ORDER BY c.mixed", 10, slices.Concat(byKind[:]...))
}

func queryTop(s *scene) {
	newCatalogue(s).expect("SELECT TOP 25 VALUE c.n FROM c ORDER BY c.n DESC", 10, numbers(119, 95))
}

func queryOffsetLimit(s *scene) {
	c := newCatalogue(s)
	c.expect("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 15 LIMIT 30", 10, numbers(15, 44))
	c.look("SELECT VALUE c.n FROM c OFFSET 5 LIMIT 50", 10, func(rows []string) {
		slices.Sort(rows)
		s.check(len(rows) == 50 && len(slices.Compact(rows)) == 50, "not 50 rows: %v", rows)
	})
}

func queryDistinct(s *scene) {
	c := newCatalogue(s)
	var families, pairs []string
	for number := range 5 {
		families = append(families, fmt.Sprintf(`"family %d"`, number))
		for tie := range 4 {
			pairs = append(pairs, fmt.Sprintf(`{"family":"family %d","tie":%d}`, number, tie))
		}
	}
	c.expectInAnyOrder("SELECT DISTINCT c.tie, c.family FROM c", 6, pairs)
	c.expect("SELECT DISTINCT VALUE c.family FROM c ORDER BY c.family", 2, families)
}

func queryAggregates(s *scene) {
	c := newCatalogue(s)
	aggregates := map[string]string{
		"COUNT(1)": "120", "SUM(c.n)": "7140", "AVG(c.n)": "59.5", "MIN(c.n)": "0", "MAX(c.n)": "119",
	}
	both := "SELECT COUNT(1) AS total, MAX(c.n) AS most FROM c WHERE c.n < 50"
	for _, before := range []func(){func() {}, c.split} {
		before()
		for aggregate, expected := range aggregates {
			query := "SELECT VALUE " + aggregate + " FROM c"
			rows := c.rows(query, azcosmos.QueryOptions{PageSizeHint: 10}, nil)
			s.check(slices.Equal(rows, []string{expected}), "%s: %v", query, rows)
		}
		rows := c.rows(both, azcosmos.QueryOptions{PageSizeHint: 10}, nil)
		s.check(slices.Equal(rows, []string{`{"most":49,"total":50}`}), "%s: %v", both, rows)
	}
}

func queryGroupBy(s *scene) {
	c := newCatalogue(s)
	members := map[any][]int{}
	for _, item := range c.items {
		members[item["family"]] = append(members[item["family"]], item["n"].(int))
	}
	var expected []string
	for family, numbers := range members {
		total := 0
		for _, n := range numbers {
			total += n
		}
		expected = append(expected, string(s.encode(object{
			"family": family, "size": len(numbers), "total": total, "mean": float64(total) / float64(len(numbers)),
			"least": slices.Min(numbers), "most": slices.Max(numbers),
		})))
	}
	query := "SELECT c.family, COUNT(1) AS size, SUM(c.n) AS total, AVG(c.n) AS mean, " +
		"MIN(c.n) AS least, MAX(c.n) AS most FROM c GROUP BY c.family"
	c.expectInAnyOrder(query, 2, expected)
}

func queryVector(s *scene) {
	query := "SELECT TOP 10 c.id FROM c ORDER BY VectorDistance(c.vector, [2000, 1])"
	newCatalogue(s).expect(query, 4, rowsOfRanks(3, 6, 9, 1, 4, 7, 10, 2, 5, 8))
}

func queryFullText(s *scene) {
	query := "SELECT TOP 10 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'comet')"
	newCatalogue(s).expect(query, 4, rowsOfRanks(10, 9, 8, 7, 6, 5, 4, 3, 2, 1))
}

func queryHybrid(s *scene) {
	query := "SELECT TOP 10 c.id FROM c " +
		"ORDER BY RANK RRF(FullTextScore(c.text, 'comet'), VectorDistance(c.vector, [2000, 1]))"
	newCatalogue(s).expect(query, 4, rowsOfRanks(9, 6, 10, 3, 7, 4, 8, 1, 5, 2))
}

// resumedAfterSplit reads a page, splits, and goes on with the continuation in a new pager.
func (c *catalogue) resumedAfterSplit(query string) []string {
	c.Helper()
	options := azcosmos.QueryOptions{PageSizeHint: 25}
	first, err := c.container.NewQueryItemsPager(query, azcosmos.NewPartitionKey(), &options).NextPage(c.ctx)
	c.ok(err)
	c.check(len(first.Items) == 25 && first.ContinuationToken != nil, "%d rows", len(first.Items))
	c.split()
	options.ContinuationToken = first.ContinuationToken
	return append(c.texts(first.Items), c.rows(query, options, nil)...)
}

func queryResumeAfterSplit(s *scene) {
	rows := newCatalogue(s).resumedAfterSplit("SELECT VALUE c.n FROM c ORDER BY c.n")
	s.check(slices.Equal(rows, numbers(0, catalogueSize-1)), "got %v", rows)
}

func queryResumeTiesAfterSplit(s *scene) {
	c := newCatalogue(s)
	c.completeByTie(c.resumedAfterSplit("SELECT VALUE [c.tie, c.n] FROM c ORDER BY c.tie"))
}
