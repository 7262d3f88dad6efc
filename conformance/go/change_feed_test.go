package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var changeFeedScenarios = scenarios{
	"feed-latest-versions":         feedLatestVersions,
	"feed-resume":                  feedResume,
	"feed-from-time":               feedFromTime,
	"feed-ranges-cover-everything": feedRangesCoverEverything,
	"feed-after-split":             feedAfterSplit,
}

// changes reads until nothing is new and gives what it saw and where to go on.
func changes(s *scene, container *azcosmos.ContainerClient, options azcosmos.ChangeFeedOptions) ([]object, string) {
	var found []object
	if options.FeedRange == nil && options.Continuation == nil {
		options.FeedRange = &azcosmos.FeedRange{MinInclusive: "", MaxExclusive: "FF"}
	}
	for range 1000 {
		page, err := container.ReadChangeFeed(s.ctx, &options)
		s.ok(err)
		for _, text := range page.Items {
			var item object
			s.ok(json.Unmarshal(text, &item))
			found = append(found, item)
		}
		token := page.ContinuationToken
		options.Continuation = &token
		if len(page.Items) == 0 {
			return found, token
		}
	}
	s.check(false, "never caught up")
	return nil, ""
}

func fill(s *scene, container *azcosmos.ContainerClient, from, to, n int) {
	for i := from; i < to; i++ {
		name := "key " + strconv.Itoa(i)
		_, err := container.UpsertItem(s.ctx, key(name), s.encode(object{"id": strconv.Itoa(i), "pk": name, "n": n}), nil)
		s.ok(err)
	}
}

func seen(found []object) []string {
	var all []string
	for _, item := range found {
		all = append(all, fmt.Sprintf("%v:%v", item["id"], item["n"]))
	}
	slices.Sort(all)
	return all
}

func wanted(from, to, n int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("%d:%d", i, n))
	}
	slices.Sort(all)
	return all
}

func (s *scene) same(found []object, expected []string) {
	s.check(slices.Equal(seen(found), expected), "expected %v, saw %v", expected, seen(found))
}

func feedLatestVersions(s *scene) {
	_, container := s.databaseAndContainer()
	fill(s, container, 0, 30, 1)
	fill(s, container, 0, 10, 2)
	_, err := container.DeleteItem(s.ctx, key("key 29"), "29", nil)
	s.ok(err)
	found, _ := changes(s, container, azcosmos.ChangeFeedOptions{MaxItemCount: 4})
	expected := append(wanted(0, 10, 2), wanted(10, 29, 1)...)
	slices.Sort(expected)
	s.same(found, expected)
	for _, item := range found {
		s.check(item["_lsn"] != nil && item["_etag"] != nil, "a change without its position: %v", item)
	}
}

func feedResume(s *scene) {
	_, container := s.databaseAndContainer()
	fill(s, container, 0, 20, 1)
	found, token := changes(s, container, azcosmos.ChangeFeedOptions{})
	s.same(found, wanted(0, 20, 1))
	fill(s, container, 15, 25, 2)
	found, token = changes(s, container, azcosmos.ChangeFeedOptions{Continuation: &token})
	s.same(found, wanted(15, 25, 2))
	found, _ = changes(s, container, azcosmos.ChangeFeedOptions{Continuation: &token})
	s.check(len(found) == 0, "saw %v again", found)
}

func feedFromTime(s *scene) {
	_, container := s.databaseAndContainer()
	fill(s, container, 0, 5, 1)
	stamp := func(i string) int64 {
		var item struct {
			Stamp int64 `json:"_ts"`
		}
		read, err := container.ReadItem(s.ctx, key("key "+i), i, nil)
		s.ok(err)
		s.ok(json.Unmarshal(read.Value, &item))
		return item.Stamp
	}
	last := stamp("4")
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		fill(s, container, 9, 10, 2)
		if stamp("9") > last {
			break
		}
		s.check(time.Now().Before(deadline), "the server's clock stands still")
	}
	start := time.Unix(last, 0)
	found, _ := changes(s, container, azcosmos.ChangeFeedOptions{StartFrom: &start})
	s.same(found, wanted(9, 10, 2))
}

func feedRangesCoverEverything(s *scene) {
	_, container := s.databaseAndContainer()
	fill(s, container, 0, 30, 1)
	ranges, err := container.ReadFeedRanges(s.ctx, nil)
	s.ok(err)
	s.check(len(ranges) == 4, "expected 4 ranges, got %d", len(ranges))
	var found []object
	for _, one := range ranges {
		part, _ := changes(s, container, azcosmos.ChangeFeedOptions{FeedRange: &one})
		found = append(found, part...)
	}
	s.same(found, wanted(0, 30, 1))
}

func feedAfterSplit(s *scene) {
	database, container := s.databaseAndContainer()
	fill(s, container, 0, 30, 1)
	found, token := changes(s, container, azcosmos.ChangeFeedOptions{})
	s.same(found, wanted(0, 30, 1))
	for _, partition := range partitionsOf(s, database, container) {
		split(s, database, container, partition)
	}
	fill(s, container, 10, 20, 2)
	found, _ = changes(s, container, azcosmos.ChangeFeedOptions{Continuation: &token})
	s.same(found, wanted(10, 20, 2))
}
