package conformance

import (
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var partitionScenarios = scenarios{
	"split-keeps-items":       splitKeepsItems,
	"split-old-session-token": splitOldSessionToken,
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
