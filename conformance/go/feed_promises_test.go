package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var feedPromiseScenarios = scenarios{
	"feed-batch-uncut":           feedBatchUncut,
	"feed-after-merge":           feedAfterMerge,
	"feed-after-merge-and-split": feedAfterMergeAndSplit,
	"feed-foreign-continuation":  feedForeignContinuation,
}

func feedBatchUncut(s *scene) {
	container := s.container()
	batch := container.NewTransactionalBatch(key("a"))
	var created []int32
	for n := range 50 {
		batch.CreateItem(s.encode(object{"id": fmt.Sprintf("b%d", n), "pk": "a", "n": n}), nil)
		created = append(created, 201)
	}
	s.execute(container, batch, 200, created...)
	failing := container.NewTransactionalBatch(key("a"))
	failing.CreateItem(s.encode(object{"id": "new", "pk": "a"}), nil)
	failing.CreateItem(s.encode(object{"id": "b0", "pk": "a"}), nil)
	answer, err := container.ExecuteTransactionalBatch(s.ctx, failing, nil)
	s.ok(err)
	s.check(!answer.Success, "a batch with a conflict succeeded")

	var pages [][]object
	options := azcosmos.ChangeFeedOptions{
		MaxItemCount: 10,
		FeedRange:    &azcosmos.FeedRange{MinInclusive: "", MaxExclusive: "FF"},
	}
	for range 16 {
		page, err := container.ReadChangeFeed(s.ctx, &options)
		s.ok(err)
		var items []object
		for _, text := range page.Items {
			var item object
			s.ok(json.Unmarshal(text, &item))
			items = append(items, item)
		}
		if len(items) > 0 {
			pages = append(pages, items)
		}
		token := page.ContinuationToken
		options.Continuation = &token
	}
	s.check(len(pages) == 1, "%d pages", len(pages))
	for n, item := range pages[0] {
		s.check(fmt.Sprint(item["n"]) == fmt.Sprint(n), "%v came as number %d", item, n)
		s.check(fmt.Sprint(item["_lsn"]) == fmt.Sprint(pages[0][0]["_lsn"]), "%v has another position", item)
	}
	s.check(len(pages[0]) == 50, "%d items", len(pages[0]))
}

// goesOn checks that a continuation from before the partitions change goes on after it.
func goesOn(s *scene, reshape func(database *azcosmos.DatabaseClient, container *azcosmos.ContainerClient)) {
	database, container := s.databaseAndContainer()
	fill(s, container, 0, 30, 1)
	found, token := changes(s, container, azcosmos.ChangeFeedOptions{})
	s.same(found, wanted(0, 30, 1))
	fill(s, container, 0, 10, 2)
	reshape(database, container)
	fill(s, container, 20, 30, 2)
	found, token = changes(s, container, azcosmos.ChangeFeedOptions{Continuation: &token})
	expected := append(wanted(0, 10, 2), wanted(20, 30, 2)...)
	slices.Sort(expected)
	s.sameOnce(found, expected)
	fill(s, container, 0, 30, 3)
	found, _ = changes(s, container, azcosmos.ChangeFeedOptions{Continuation: &token})
	s.sameOnce(found, wanted(0, 30, 3))
}

// sameOnce takes what came more than once for one: the SDK reads a merged partition whole for each range it had before.
func (s *scene) sameOnce(found []object, expected []string) {
	once := slices.Compact(seen(found))
	s.check(slices.Equal(once, expected), "expected %v, saw %v", expected, once)
}

func feedAfterMerge(s *scene) {
	goesOn(s, func(database *azcosmos.DatabaseClient, container *azcosmos.ContainerClient) {
		merge(s, database, container)
	})
}

func feedAfterMergeAndSplit(s *scene) {
	goesOn(s, func(database *azcosmos.DatabaseClient, container *azcosmos.ContainerClient) {
		// Three of four quarters become one, whose middle was no bound before.
		merge(s, database, container)
		merge(s, database, container)
		split(s, database, container, partitionsOf(s, database, container)[0])
	})
}

func feedForeignContinuation(s *scene) {
	database, container := s.databaseAndContainer()
	fill(s, container, 0, 5, 1)
	_, token := changes(s, container, azcosmos.ChangeFeedOptions{})
	other := s.container()
	fill(s, other, 0, 5, 1)
	_, err := other.ReadChangeFeed(s.ctx, &azcosmos.ChangeFeedOptions{Continuation: &token})
	s.check(err != nil, "another container took it")
	_, err = container.Delete(s.ctx, nil)
	s.ok(err)
	properties := containerProperties()
	properties.ID = container.ID()
	_, err = database.CreateContainer(s.ctx, properties, nil)
	s.ok(err)
	// The SDK's clients of one address share what they know of containers.
	apart := strings.Replace(endpoint(), "localhost", "127.0.0.1", 1)
	client := s.connected(apart, os.Getenv("ORRERY_KEY"), nil)
	again, err := client.NewContainer(database.ID(), container.ID())
	s.ok(err)
	fill(s, again, 0, 5, 1)
	_, err = again.ReadChangeFeed(s.ctx, &azcosmos.ChangeFeedOptions{Continuation: &token})
	s.check(err != nil, "the container made again took it")
}
