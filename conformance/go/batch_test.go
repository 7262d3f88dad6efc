package conformance

import (
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var batchScenarios = scenarios{
	"batch-all-operations":      batchAllOperations,
	"batch-is-atomic":           batchIsAtomic,
	"batch-if-match":            batchIfMatch,
	"batch-sees-its-own-writes": batchSeesItsOwnWrites,
}

func (s *scene) execute(
	container *azcosmos.ContainerClient, batch azcosmos.TransactionalBatch, status int, statuses ...int32,
) []azcosmos.TransactionalBatchResult {
	s.Helper()
	answer, err := container.ExecuteTransactionalBatch(s.ctx, batch, &azcosmos.TransactionalBatchOptions{
		EnableContentResponseOnWrite: true,
	})
	s.status(status, answer.Response, err)
	s.check(answer.Success == (status == 200), "status %d, success %v", status, answer.Success)
	var given []int32
	for _, result := range answer.OperationResults {
		given = append(given, result.StatusCode)
	}
	s.check(slices.Equal(given, statuses), "expected %v, got %v", statuses, given)
	return answer.OperationResults
}

func batchAllOperations(s *scene) {
	container := s.container()
	for _, id := range []string{"read", "replaced", "patched", "deleted"} {
		s.create(container, key("a"), object{"id": id, "pk": "a", "n": 1})
	}
	var operations azcosmos.PatchOperations
	operations.AppendIncrement("/n", 1)
	batch := container.NewTransactionalBatch(key("a"))
	batch.CreateItem(s.encode(object{"id": "created", "pk": "a"}), nil)
	batch.UpsertItem(s.encode(object{"id": "upserted", "pk": "a"}), nil)
	batch.ReadItem("read", nil)
	batch.ReplaceItem("replaced", s.encode(object{"id": "replaced", "pk": "a", "n": 5}), nil)
	batch.PatchItem("patched", operations, nil)
	batch.DeleteItem("deleted", nil)
	results := s.execute(container, batch, 200, 201, 201, 200, 200, 200, 204)

	s.shows(s.decode(results[2].ResourceBody), "id", `"read"`)
	for i, result := range results {
		s.check(result.RequestCharge > 0, "operation %d has the charge %v", i, result.RequestCharge)
		s.check(i == 5 || result.ETag != "", "operation %d has no etag", i)
	}
	s.read(container, key("a"), "created")
	s.read(container, key("a"), "upserted")
	s.shows(s.read(container, key("a"), "replaced"), "n", "5")
	s.shows(s.read(container, key("a"), "patched"), "n", "2")
	s.gone(container, key("a"), "deleted")
}

func batchIsAtomic(s *scene) {
	container := s.container()
	s.create(container, key("a"), object{"id": "taken", "pk": "a", "n": 1})
	batch := container.NewTransactionalBatch(key("a"))
	batch.CreateItem(s.encode(object{"id": "before", "pk": "a"}), nil)
	batch.CreateItem(s.encode(object{"id": "taken", "pk": "a", "n": 2}), nil)
	batch.CreateItem(s.encode(object{"id": "after", "pk": "a"}), nil)
	s.execute(container, batch, 207, 424, 409, 424)
	s.gone(container, key("a"), "before")
	s.gone(container, key("a"), "after")
	s.shows(s.read(container, key("a"), "taken"), "n", "1")
}

func batchIfMatch(s *scene) {
	container, stale := changedSince(s)
	batch := container.NewTransactionalBatch(key("a"))
	batch.CreateItem(s.encode(object{"id": "2", "pk": "a"}), nil)
	batch.ReplaceItem("1", s.encode(object{"id": "1", "pk": "a", "n": 3}), &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &stale})
	s.execute(container, batch, 207, 424, 412)
	s.gone(container, key("a"), "2")
	s.shows(s.read(container, key("a"), "1"), "n", "2")
}

func batchSeesItsOwnWrites(s *scene) {
	container := s.container()
	batch := container.NewTransactionalBatch(key("a"))
	batch.CreateItem(s.encode(object{"id": "1", "pk": "a", "n": 9}), nil)
	batch.ReadItem("1", nil)
	results := s.execute(container, batch, 200, 201, 200)
	s.shows(s.decode(results[1].ResourceBody), "n", "9")
}
