package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

const (
	catalogueSize       = 120
	cataloguePartitions = 8
)

// catalogue is the data of the query scenarios: 120 items of 40 keys in eight physical partitions. See ../README.md.
type catalogue struct {
	*scene
	database  *azcosmos.DatabaseClient
	container *azcosmos.ContainerClient
	items     []object
}

func newCatalogue(s *scene) *catalogue {
	s.Helper()
	database := s.database()
	throughput := azcosmos.NewManualThroughputProperties(10_000 * cataloguePartitions)
	container := s.containerIn(database, &throughput, searchable)
	n := len(partitionsOf(s, database, container))
	s.check(n == cataloguePartitions, "expected %d partitions, got %d", cataloguePartitions, n)
	c := &catalogue{scene: s, database: database, container: container}
	for i := range catalogueSize {
		c.items = append(c.items, catalogueItem(i))
	}
	c.fill()
	return c
}

func searchable(properties *azcosmos.ContainerProperties) {
	properties.IndexingPolicy = &azcosmos.IndexingPolicy{
		Automatic:     true,
		IndexingMode:  azcosmos.IndexingModeConsistent,
		IncludedPaths: []azcosmos.IncludedPath{{Path: "/*"}},
		ExcludedPaths: []azcosmos.ExcludedPath{{Path: "/vector/*"}},
		CompositeIndexes: [][]azcosmos.CompositeIndex{{
			{Path: "/tie", Order: azcosmos.CompositeIndexAscending},
			{Path: "/n", Order: azcosmos.CompositeIndexDescending},
		}},
		VectorIndexes:   []azcosmos.VectorIndex{{Path: "/vector", Type: azcosmos.VectorIndexTypeFlat}},
		FullTextIndexes: []azcosmos.FullTextIndex{{Path: "/text"}},
	}
	properties.VectorEmbeddingPolicy = &azcosmos.VectorEmbeddingPolicy{VectorEmbeddings: []azcosmos.VectorEmbedding{{
		Path: "/vector", Dimensions: 2,
		DataType: azcosmos.VectorDataTypeFloat32, DistanceFunction: azcosmos.VectorDistanceFunctionEuclidean,
	}}}
	properties.FullTextPolicy = &azcosmos.FullTextPolicy{
		DefaultLanguage: "en-US",
		FullTextPaths:   []azcosmos.FullTextPath{{Path: "/text", Language: "en-US"}},
	}
}

func catalogueItem(i int) object {
	n, rank := i*37%catalogueSize, cometRank(i)
	item := object{
		"id": strconv.Itoa(i), "pk": fmt.Sprintf("key %d", i%40), "n": n, "tie": i % 4,
		"family": fmt.Sprintf("family %d", i%5),
		"text":   strings.Repeat("comet ", rank) + strings.Repeat("dust ", 20-rank),
		"vector": []int{n, 1},
	}
	if rank > 0 {
		item["vector"] = []int{1000 + rank*7%11, 1}
	}
	switch i % 5 {
	case 1:
		item["mixed"] = nil
	case 2:
		item["mixed"] = i%4 == 2
	case 3:
		item["mixed"] = n
	case 4:
		item["mixed"] = fmt.Sprintf("text %03d", n)
	}
	return item
}

// cometRank is above zero for the ten items that speak of comets: the first once, the last ten times.
func cometRank(i int) int {
	if i%12 != 0 {
		return 0
	}
	return i/12 + 1
}

// rowsOfRanks are the ids of those items, one per row.
func rowsOfRanks(ranks ...int) []string {
	var rows []string
	for _, rank := range ranks {
		rows = append(rows, fmt.Sprintf(`{"id":"%d"}`, (rank-1)*12))
	}
	return rows
}

func (c *catalogue) fill() {
	c.Helper()
	var waiting sync.WaitGroup
	failures := make([]error, len(c.items))
	for i, item := range c.items {
		waiting.Go(func() {
			_, failures[i] = c.container.CreateItem(c.ctx, key(item["pk"].(string)), c.encode(item), nil)
		})
	}
	waiting.Wait()
	for _, err := range failures {
		c.ok(err)
	}
}

// split splits every partition the container has now.
func (c *catalogue) split() {
	c.Helper()
	for _, partition := range partitionsOf(c.scene, c.database, c.container) {
		split(c.scene, c.database, c.container, partition)
	}
}

// texts gives rows as JSON with sorted members.
func (c *catalogue) texts(rows [][]byte) []string {
	c.Helper()
	var texts []string
	for _, row := range rows {
		var value any
		c.ok(json.Unmarshal(row, &value))
		texts = append(texts, string(c.encode(value)))
	}
	return texts
}

// rows gives the JSON texts of all pages, with something to do after the first one.
func (c *catalogue) rows(query string, options azcosmos.QueryOptions, afterFirst func()) []string {
	c.Helper()
	rows := []string{}
	pager := c.container.NewQueryItemsPager(query, azcosmos.NewPartitionKey(), &options)
	for pager.More() {
		page, err := pager.NextPage(c.ctx)
		c.ok(err)
		c.check(len(page.Items) <= int(options.PageSizeHint), "a page of %d rows", len(page.Items))
		rows = append(rows, c.texts(page.Items)...)
		if afterFirst != nil {
			afterFirst()
			afterFirst = nil
		}
	}
	return rows
}

// look hands over the rows of a query before, during and after a split of all partitions.
func (c *catalogue) look(query string, pageSize int32, right func(rows []string)) {
	c.Helper()
	options := azcosmos.QueryOptions{PageSizeHint: pageSize}
	right(c.rows(query, options, nil))
	right(c.rows(query, options, c.split))
	right(c.rows(query, options, nil))
}

// expect wants exactly these rows.
func (c *catalogue) expect(query string, pageSize int32, expected []string) {
	c.Helper()
	c.look(query, pageSize, func(rows []string) {
		c.Helper()
		c.check(slices.Equal(rows, expected), "%s: expected %v, got %v", query, expected, rows)
	})
}

// expectInAnyOrder wants exactly these rows, sorted or not.
func (c *catalogue) expectInAnyOrder(query string, pageSize int32, expected []string) {
	c.Helper()
	slices.Sort(expected)
	c.look(query, pageSize, func(rows []string) {
		c.Helper()
		slices.Sort(rows)
		c.check(slices.Equal(rows, expected), "%s: expected %v, got %v", query, expected, rows)
	})
}
