package conformance

import (
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var partitionScenarios = scenarios{
	"split-keeps-items":       splitKeepsItems,
	"split-old-session-token": splitOldSessionToken,
	"merge-under-paging":      mergeUnderPaging,
}

func splitKeepsItems(s *scene) {
	const n = 40
	database, container := s.databaseAndContainer()
	name := func(i int) string { return "key-" + strconv.Itoa(i) }
	for i := range n {
		s.create(container, key(name(i)), object{"id": "1", "pk": name(i), "n": i})
	}
	before := partitionsOf(s, database, container)
	split(s, database, container, before[0])
	after := partitionsOf(s, database, container)
	s.check(len(after) == len(before)+1, "%d partitions became %d", len(before), len(after))

	for i := range n {
		s.shows(s.read(container, key(name(i)), "1"), "n", strconv.Itoa(i))
		replaced, err := container.ReplaceItem(s.ctx, key(name(i)), "1", s.encode(object{"id": "1", "pk": name(i), "n": -i}), nil)
		s.status(200, replaced.Response, err)
		s.create(container, key(name(i)), object{"id": "2", "pk": name(i)})
		s.shows(s.read(container, key(name(i)), "1"), "n", strconv.Itoa(-i))
	}
	ranges, err := container.ReadFeedRanges(s.ctx, nil)
	s.ok(err)
	s.check(len(ranges) == len(after), "expected %d feed ranges, got %d", len(after), len(ranges))
	coverEverything(s, ranges)
}

func splitOldSessionToken(s *scene) {
	database, container := s.databaseAndContainer()
	created := s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 1})
	token := sessionToken(s, created)
	partition, err := strconv.Atoi(token[:strings.Index(token, ":")])
	s.ok(err)
	split(s, database, container, partition)

	read, err := container.ReadItem(s.ctx, key("a"), "1", &azcosmos.ItemOptions{SessionToken: &token})
	s.status(200, read.Response, err)
	s.shows(s.decode(read.Value), "n", "1")
	fresh := sessionToken(s, read)
	s.check(!strings.HasPrefix(fresh, strconv.Itoa(partition)+":"), "after the split the token is still %s", fresh)
}

const mergedItems = 60

func mergedKey(i int) azcosmos.PartitionKey { return key("key " + strconv.Itoa(i)) }

// written upserts items of many keys and gives the session token of each.
func written(s *scene, container *azcosmos.ContainerClient, n int) []string {
	s.Helper()
	var tokens []string
	for i := range mergedItems {
		item := object{"id": strconv.Itoa(i), "pk": "key " + strconv.Itoa(i), "n": n}
		answer, err := container.UpsertItem(s.ctx, mergedKey(i), s.encode(item), nil)
		s.ok(err)
		tokens = append(tokens, sessionToken(s, answer))
	}
	return tokens
}

func mergeUnderPaging(s *scene) {
	database, container := s.databaseAndContainer()
	beforeSplit := written(s, container, 1)
	before := partitionsOf(s, database, container)
	split(s, database, container, before[0])
	s.check(len(partitionsOf(s, database, container)) == len(before)+1, "the leftmost partition did not split")
	beforeMerge := written(s, container, 2)

	var found []string
	options := azcosmos.QueryOptions{PageSizeHint: 4}
	pager := container.NewQueryItemsPager("SELECT VALUE c.id FROM c", azcosmos.NewPartitionKey(), &options)
	for nPages := 0; pager.More(); nPages++ {
		page, err := pager.NextPage(s.ctx)
		s.ok(err)
		s.check(len(page.Items) <= 4, "a page of %d rows", len(page.Items))
		for _, row := range page.Items {
			found = append(found, string(row))
		}
		if nPages == 0 {
			merge(s, database, container)
		}
	}
	after := partitionsOf(s, database, container)
	s.check(len(after) == len(before), "%d partitions became %d", len(before), len(after))
	var expected []string
	for i := range mergedItems {
		expected = append(expected, strconv.Quote(strconv.Itoa(i)))
	}
	slices.Sort(expected)
	slices.Sort(found)
	s.check(slices.Equal(found, expected), "expected %v, got %v", expected, found)

	for i := range mergedItems {
		for _, token := range []string{beforeSplit[i], beforeMerge[i]} {
			read, err := container.ReadItem(s.ctx, mergedKey(i), strconv.Itoa(i), &azcosmos.ItemOptions{SessionToken: &token})
			s.status(200, read.Response, err)
			s.shows(s.decode(read.Value), "n", "2")
		}
	}
}
