package conformance

import (
	"reflect"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var containerScenarios = scenarios{
	"container-create-read-delete":          containerCreateReadDelete,
	"container-create-twice-is-409":         containerCreateTwice,
	"container-missing-is-404":              containerMissing,
	"container-odd-name":                    containerOddName,
	"container-list-and-query":              containerListAndQuery,
	"container-default-indexing-policy":     containerDefaultIndexingPolicy,
	"container-custom-indexing-policy":      containerCustomIndexingPolicy,
	"container-replace-indexing-policy":     containerReplaceIndexingPolicy,
	"container-replace-ttl":                 containerReplaceTTL,
	"container-partition-key-cannot-change": containerPartitionKeyCannotChange,
	"container-hierarchical-key":            containerHierarchicalKey,
	"container-unique-keys-shown":           containerUniqueKeysShown,
	"container-feed-ranges":                 containerFeedRanges,
}

func containerCreateReadDelete(s *scene) {
	container := s.container()
	read, err := container.Read(s.ctx, nil)
	s.status(200, read.Response, err)
	shown := read.ContainerProperties
	s.check(shown.ID == container.ID(), "expected id %s, got %s", container.ID(), shown.ID)
	s.check(slices.Equal(shown.PartitionKeyDefinition.Paths, []string{"/pk"}), "key paths %v", shown.PartitionKeyDefinition.Paths)
	s.check(shown.PartitionKeyDefinition.Version == 2, "key version %d", shown.PartitionKeyDefinition.Version)
	s.check(len(shown.ResourceID) == 12, "_rid %q is not of 8 bytes", shown.ResourceID)
	s.check(strings.HasSuffix(shown.SelfLink, "/colls/"+shown.ResourceID+"/"), "_self %s of _rid %s", shown.SelfLink, shown.ResourceID)
	s.check(*shown.ETag == read.ETag, "etag header %s, _etag %s", read.ETag, *shown.ETag)

	deleted, err := container.Delete(s.ctx, nil)
	s.status(204, deleted.Response, err)
	_, err = container.Read(s.ctx, nil)
	s.refused(404, err)
}

func containerCreateTwice(s *scene) {
	database, container := s.databaseAndContainer()
	_, err := database.CreateContainer(s.ctx, *s.properties(container), nil)
	s.refused(409, err)
}

func containerMissing(s *scene) {
	container, err := s.database().NewContainer("missing")
	s.ok(err)
	_, err = container.Read(s.ctx, nil)
	s.refused(404, err)
	_, err = container.Delete(s.ctx, nil)
	s.refused(404, err)
}

func containerOddName(s *scene) {
	const name = "100% größe"
	container := s.container(func(properties *azcosmos.ContainerProperties) { properties.ID = name })
	s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 1})
	s.shows(s.read(container, key("a"), "1"), "n", "1")
	shown := s.properties(container)
	s.check(shown.ID == name, "the container is called %q", shown.ID)
}

func containerListAndQuery(s *scene) {
	database := s.database()
	first, second := s.containerIn(database, nil).ID(), s.containerIn(database, nil).ID()
	listed := foundContainers(s, database, "SELECT * FROM c", nil)
	s.check(len(listed) == 2 && slices.Contains(listed, first) && slices.Contains(listed, second), "listed %v", listed)
	found := foundContainers(s, database, "SELECT * FROM c WHERE c.id = @id", []azcosmos.QueryParameter{{Name: "@id", Value: second}})
	s.check(slices.Equal(found, []string{second}), "expected %s alone, got %v", second, found)
}

func foundContainers(
	s *scene, database *azcosmos.DatabaseClient, query string, parameters []azcosmos.QueryParameter,
) []string {
	s.Helper()
	var found []string
	pager := database.NewQueryContainersPager(query, &azcosmos.QueryContainersOptions{QueryParameters: parameters})
	for pager.More() {
		page, err := pager.NextPage(s.ctx)
		s.status(200, page.Response, err)
		for _, container := range page.Containers {
			found = append(found, container.ID)
		}
	}
	return found
}

func containerDefaultIndexingPolicy(s *scene) {
	shown := s.properties(s.container()).IndexingPolicy
	s.check(shown != nil, "there is no indexing policy")
	s.check(shown.Automatic && strings.EqualFold(string(shown.IndexingMode), "consistent"), "automatic %v, mode %s", shown.Automatic, shown.IndexingMode)
	s.check(reflect.DeepEqual(shown.IncludedPaths, []azcosmos.IncludedPath{{Path: "/*"}}), "included %v", shown.IncludedPaths)
	s.check(reflect.DeepEqual(shown.ExcludedPaths, []azcosmos.ExcludedPath{{Path: `/"_etag"/?`}}), "excluded %v", shown.ExcludedPaths)
}

func containerCustomIndexingPolicy(s *scene) {
	policy := &azcosmos.IndexingPolicy{
		Automatic:     true,
		IndexingMode:  azcosmos.IndexingModeConsistent,
		IncludedPaths: []azcosmos.IncludedPath{{Path: "/name/?"}, {Path: "/address/*"}},
		ExcludedPaths: []azcosmos.ExcludedPath{{Path: "/*"}, {Path: "/blob/?"}},
		SpatialIndexes: []azcosmos.SpatialIndex{{
			Path: "/place/?", SpatialTypes: []azcosmos.SpatialType{azcosmos.SpatialTypePoint, azcosmos.SpatialTypePolygon},
		}},
		CompositeIndexes: [][]azcosmos.CompositeIndex{{
			{Path: "/name", Order: azcosmos.CompositeIndexAscending}, {Path: "/age", Order: azcosmos.CompositeIndexDescending},
		}},
	}
	shown := s.properties(s.container(indexedBy(policy))).IndexingPolicy
	s.check(reflect.DeepEqual(shown.IncludedPaths, policy.IncludedPaths), "included %v", shown.IncludedPaths)
	for _, path := range policy.ExcludedPaths {
		s.check(slices.Contains(shown.ExcludedPaths, path), "%s is not among the excluded %v", path, shown.ExcludedPaths)
	}
	s.check(reflect.DeepEqual(shown.CompositeIndexes, policy.CompositeIndexes), "composite %v", shown.CompositeIndexes)
	s.check(len(shown.SpatialIndexes) == 1 && shown.SpatialIndexes[0].Path == "/place/?", "spatial %v", shown.SpatialIndexes)
	for _, kind := range policy.SpatialIndexes[0].SpatialTypes {
		s.check(slices.Contains(shown.SpatialIndexes[0].SpatialTypes, kind), "%s is not among %v", kind, shown.SpatialIndexes[0].SpatialTypes)
	}
}

func indexedBy(policy *azcosmos.IndexingPolicy) func(*azcosmos.ContainerProperties) {
	return func(properties *azcosmos.ContainerProperties) { properties.IndexingPolicy = policy }
}

func containerReplaceIndexingPolicy(s *scene) {
	container := s.container()
	before := s.properties(container)
	changed := *before
	changed.IndexingPolicy = &azcosmos.IndexingPolicy{
		Automatic:     true,
		IndexingMode:  azcosmos.IndexingModeConsistent,
		IncludedPaths: []azcosmos.IncludedPath{{Path: "/*"}},
		ExcludedPaths: []azcosmos.ExcludedPath{{Path: "/large/*"}},
	}
	replaced, err := container.Replace(s.ctx, changed, nil)
	s.status(200, replaced.Response, err)
	after := s.properties(container)
	s.check(slices.Contains(after.IndexingPolicy.ExcludedPaths, azcosmos.ExcludedPath{Path: "/large/*"}), "excluded %v", after.IndexingPolicy.ExcludedPaths)
	s.check(*after.ETag != *before.ETag, "the etag did not change")
	s.check(after.ResourceID == before.ResourceID, "the _rid changed from %s to %s", before.ResourceID, after.ResourceID)
}

func containerReplaceTTL(s *scene) {
	container := s.container()
	properties := s.properties(container)
	s.check(properties.DefaultTimeToLive == nil, "a new container has a time to live")
	properties.DefaultTimeToLive = to.Ptr[int32](3600)
	replaced, err := container.Replace(s.ctx, *properties, nil)
	s.status(200, replaced.Response, err)
	shown := s.properties(container).DefaultTimeToLive
	s.check(shown != nil && *shown == 3600, "expected 3600, got %v", shown)
}

func containerPartitionKeyCannotChange(s *scene) {
	container := s.container()
	properties := s.properties(container)
	properties.PartitionKeyDefinition.Paths = []string{"/other"}
	_, err := container.Replace(s.ctx, *properties, nil)
	s.refused(400, err)
	s.check(slices.Equal(s.properties(container).PartitionKeyDefinition.Paths, []string{"/pk"}), "the key changed all the same")
}

func hierarchical(properties *azcosmos.ContainerProperties) {
	properties.PartitionKeyDefinition = azcosmos.PartitionKeyDefinition{
		Kind: azcosmos.PartitionKeyKindMultiHash, Paths: []string{"/tenant", "/user", "/session"}, Version: 2,
	}
}

func containerHierarchicalKey(s *scene) {
	shown := s.properties(s.container(hierarchical)).PartitionKeyDefinition
	s.check(shown.Kind == azcosmos.PartitionKeyKindMultiHash && shown.Version == 2, "kind %s, version %d", shown.Kind, shown.Version)
	s.check(slices.Equal(shown.Paths, []string{"/tenant", "/user", "/session"}), "paths %v", shown.Paths)
}

func containerUniqueKeysShown(s *scene) {
	policy := azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{
		{Paths: []string{"/email"}}, {Paths: []string{"/name/first", "/name/last"}},
	}}
	shown := s.properties(s.container(func(properties *azcosmos.ContainerProperties) {
		properties.UniqueKeyPolicy = &policy
	})).UniqueKeyPolicy
	s.check(shown != nil && reflect.DeepEqual(*shown, policy), "expected %v, got %v", policy, shown)
}

func containerFeedRanges(s *scene) {
	ranges, err := s.container().ReadFeedRanges(s.ctx, nil)
	s.ok(err)
	s.check(len(ranges) > 1, "expected several ranges, got %d", len(ranges))
	coverEverything(s, ranges)
}

func coverEverything(s *scene, ranges []azcosmos.FeedRange) {
	s.Helper()
	slices.SortFunc(ranges, func(a, b azcosmos.FeedRange) int { return strings.Compare(a.MinInclusive, b.MinInclusive) })
	end := ""
	for _, next := range ranges {
		s.check(next.MinInclusive == end, "after %q comes %q", end, next.MinInclusive)
		end = next.MaxExclusive
	}
	s.check(end == "FF", "the ranges end at %q", end)
}
