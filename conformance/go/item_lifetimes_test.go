package conformance

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var itemLifetimeScenarios = scenarios{
	"item-ttl-expires": itemTTLExpires,
	"item-ttl-never":   itemTTLNever,
	"item-not-indexed": itemNotIndexed,
}

func livingFor(seconds int32) func(*azcosmos.ContainerProperties) {
	return func(properties *azcosmos.ContainerProperties) { properties.DefaultTimeToLive = to.Ptr(seconds) }
}

func (s *scene) expires(container *azcosmos.ContainerClient, id string) {
	s.Helper()
	s.eventually("the expiry of item "+id, func() bool {
		_, err := container.ReadItem(s.ctx, key("a"), id, nil)
		return statusOf(err) == 404
	})
}

func itemTTLExpires(s *scene) {
	container := s.container(livingFor(-1))
	s.create(container, key("a"), object{"id": "short", "pk": "a", "ttl": 1})
	s.create(container, key("a"), object{"id": "long", "pk": "a"})
	s.expires(container, "short")
	s.read(container, key("a"), "long")
	// Gone means gone: the id is free again.
	s.create(container, key("a"), object{"id": "short", "pk": "a"})
}

func itemTTLNever(s *scene) {
	container := s.container(livingFor(1))
	s.create(container, key("a"), object{"id": "always", "pk": "a", "ttl": -1})
	s.create(container, key("a"), object{"id": "default", "pk": "a"})
	s.expires(container, "default")
	s.shows(s.read(container, key("a"), "always"), "ttl", "-1")
}

func itemNotIndexed(s *scene) {
	container := s.container()
	s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 5})
	options := &azcosmos.ItemOptions{IndexingDirective: to.Ptr(azcosmos.IndexingDirectiveExclude)}
	created, err := container.CreateItem(s.ctx, key("a"), s.encode(object{"id": "2", "pk": "a", "n": 5}), options)
	s.status(201, created.Response, err)
	pager := container.NewQueryItemsPager("SELECT VALUE c.id FROM c WHERE c.n = 5 ORDER BY c.id", key("a"), nil)
	var found string
	for pager.More() {
		page, err := pager.NextPage(s.ctx)
		s.ok(err)
		for _, row := range page.Items {
			found += string(row)
		}
	}
	s.check(found == `"1""2"`, "expected both items, got %s", found)
}
