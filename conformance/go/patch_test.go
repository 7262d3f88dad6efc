package conformance

import (
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var patchScenarios = scenarios{
	"patch-set-add-replace-remove": patchSetAddReplaceRemove,
	"patch-increment":              patchIncrement,
	"patch-array-insert-append":    patchArrayInsertAppend,
	"patch-condition-holds":        patchConditionHolds,
	"patch-condition-fails-is-412": patchConditionFails,
	"patch-missing-path-is-400":    patchMissingPath,
	"patch-missing-item-is-404":    patchMissingItem,
}

// patched applies the operations to an item with a few properties and gives it as read afterwards.
func patched(s *scene, build func(*azcosmos.PatchOperations)) object {
	s.Helper()
	container := patchable(s)
	var operations azcosmos.PatchOperations
	build(&operations)
	answer, err := container.PatchItem(s.ctx, key("a"), "1", operations, withContent)
	s.status(200, answer.Response, err)
	item := s.read(container, key("a"), "1")
	s.check(string(s.encode(item)) == string(s.encode(s.decode(answer.Value))), "answered %s, read %v", answer.Value, item)
	return item
}

func patchable(s *scene) *azcosmos.ContainerClient {
	s.Helper()
	container := s.container()
	s.create(container, key("a"), object{
		"id": "1", "pk": "a", "n": 10, "name": "old", "spare": true, "tags": []string{"b"}, "inner": object{"x": 1},
	})
	return container
}

func patchSetAddReplaceRemove(s *scene) {
	item := patched(s, func(operations *azcosmos.PatchOperations) {
		operations.AppendSet("/inner/y", "set")
		operations.AppendAdd("/added", object{"deep": []int{1, 2}})
		operations.AppendReplace("/name", "new")
		operations.AppendRemove("/spare")
	})
	s.shows(item, "inner", `{"x":1,"y":"set"}`)
	s.shows(item, "added", `{"deep":[1,2]}`)
	s.shows(item, "name", `"new"`)
	s.check(item["spare"] == nil, "the removed property is still there")
	s.shows(item, "n", "10")
}

func patchIncrement(s *scene) {
	item := patched(s, func(operations *azcosmos.PatchOperations) {
		operations.AppendIncrement("/n", 5)
		operations.AppendIncrement("/inner/x", -3)
		operations.AppendIncrement("/fresh", 7)
	})
	s.shows(item, "n", "15")
	s.shows(item, "inner", `{"x":-2}`)
	s.shows(item, "fresh", "7")
}

func patchArrayInsertAppend(s *scene) {
	item := patched(s, func(operations *azcosmos.PatchOperations) {
		operations.AppendAdd("/tags/0", "a")
		operations.AppendAdd("/tags/-", "c")
	})
	s.shows(item, "tags", `["a","b","c"]`)
}

func patchConditionHolds(s *scene) {
	item := patched(s, func(operations *azcosmos.PatchOperations) {
		operations.SetCondition("FROM c WHERE c.n = 10 AND c.name = 'old'")
		operations.AppendSet("/name", "new")
	})
	s.shows(item, "name", `"new"`)
}

func patchConditionFails(s *scene) {
	container := patchable(s)
	var operations azcosmos.PatchOperations
	operations.SetCondition("FROM c WHERE c.n > 10")
	operations.AppendSet("/name", "new")
	_, err := container.PatchItem(s.ctx, key("a"), "1", operations, nil)
	s.refused(412, err)
	s.shows(s.read(container, key("a"), "1"), "name", `"old"`)
}

func patchMissingPath(s *scene) {
	container := patchable(s)
	var operations azcosmos.PatchOperations
	operations.AppendSet("/name", "new")
	operations.AppendRemove("/nowhere")
	_, err := container.PatchItem(s.ctx, key("a"), "1", operations, nil)
	s.refused(400, err)
	s.shows(s.read(container, key("a"), "1"), "name", `"old"`)
}

func patchMissingItem(s *scene) {
	var operations azcosmos.PatchOperations
	operations.AppendSet("/name", "new")
	_, err := s.container().PatchItem(s.ctx, key("a"), "1", operations, nil)
	s.refused(404, err)
}
