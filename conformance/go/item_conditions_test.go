package conformance

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var itemConditionScenarios = scenarios{
	"item-etag-if-match":              itemETagIfMatch,
	"item-stale-etag-is-412":          itemStaleETag,
	"item-delete-stale-etag-is-412":   itemDeleteStaleETag,
	"item-no-content-response":        itemNoContentResponse,
	"item-unique-key-conflict-is-409": itemUniqueKeyConflict,
}

func ifMatch(etag azcore.ETag) *azcosmos.ItemOptions {
	return &azcosmos.ItemOptions{IfMatchEtag: &etag}
}

func itemETagIfMatch(s *scene) {
	container := s.container()
	created := s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 1})
	next := s.encode(object{"id": "1", "pk": "a", "n": 2})
	replaced, err := container.ReplaceItem(s.ctx, key("a"), "1", next, ifMatch(created.ETag))
	s.status(200, replaced.Response, err)
	s.shows(s.read(container, key("a"), "1"), "n", "2")
	deleted, err := container.DeleteItem(s.ctx, key("a"), "1", ifMatch(replaced.ETag))
	s.status(204, deleted.Response, err)
}

// changedSince gives a container whose only item has another etag than the one returned.
func changedSince(s *scene) (*azcosmos.ContainerClient, azcore.ETag) {
	container := s.container()
	created := s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 1})
	_, err := container.ReplaceItem(s.ctx, key("a"), "1", s.encode(object{"id": "1", "pk": "a", "n": 2}), nil)
	s.ok(err)
	return container, created.ETag
}

func itemStaleETag(s *scene) {
	container, stale := changedSince(s)
	next := s.encode(object{"id": "1", "pk": "a", "n": 3})
	_, err := container.ReplaceItem(s.ctx, key("a"), "1", next, ifMatch(stale))
	s.refused(412, err)
	_, err = container.UpsertItem(s.ctx, key("a"), next, ifMatch(stale))
	s.refused(412, err)
	s.shows(s.read(container, key("a"), "1"), "n", "2")
}

func itemDeleteStaleETag(s *scene) {
	container, stale := changedSince(s)
	_, err := container.DeleteItem(s.ctx, key("a"), "1", ifMatch(stale))
	s.refused(412, err)
	s.shows(s.read(container, key("a"), "1"), "n", "2")
}

func itemNoContentResponse(s *scene) {
	container := s.container()
	item := s.encode(object{"id": "1", "pk": "a"})
	silent := func(wanted int, response azcosmos.ItemResponse, err error) {
		s.Helper()
		s.status(wanted, response.Response, err)
		s.check(len(response.Value) == 0, "expected no content, got %s", response.Value)
		s.check(response.ETag != "", "there is no etag")
	}
	created, err := container.CreateItem(s.ctx, key("a"), item, nil)
	silent(201, created, err)
	upserted, err := container.UpsertItem(s.ctx, key("a"), item, nil)
	silent(200, upserted, err)
	replaced, err := container.ReplaceItem(s.ctx, key("a"), "1", item, nil)
	silent(200, replaced, err)
	var operations azcosmos.PatchOperations
	operations.AppendSet("/n", 1)
	patched, err := container.PatchItem(s.ctx, key("a"), "1", operations, nil)
	silent(200, patched, err)

	loud, err := container.ReplaceItem(s.ctx, key("a"), "1", item, withContent)
	s.status(200, loud.Response, err)
	s.shows(s.decode(loud.Value), "id", `"1"`)
}

func itemUniqueKeyConflict(s *scene) {
	container := s.container(func(properties *azcosmos.ContainerProperties) {
		properties.UniqueKeyPolicy = &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/email"}}}}
	})
	s.create(container, key("a"), object{"id": "1", "pk": "a", "email": "x@example.com"})
	_, err := container.CreateItem(s.ctx, key("a"), s.encode(object{"id": "2", "pk": "a", "email": "x@example.com"}), nil)
	s.refused(409, err)
	s.gone(container, key("a"), "2")
	s.create(container, key("b"), object{"id": "2", "pk": "b", "email": "x@example.com"})
	s.create(container, key("a"), object{"id": "2", "pk": "a", "email": "y@example.com"})
}
