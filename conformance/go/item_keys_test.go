package conformance

import (
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var itemKeyScenarios = scenarios{
	"item-number-key":          itemNumberKey,
	"item-boolean-key":         itemBooleanKey,
	"item-null-key":            itemNullKey,
	"item-hierarchical-key":    itemHierarchicalKey,
	"item-key-mismatch-is-400": itemKeyMismatch,
}

func itemNumberKey(s *scene) {
	container := s.container()
	for _, number := range []float64{0, 42, -7, 1.5, 1e15} {
		s.create(container, azcosmos.NewPartitionKeyNumber(number), object{"id": "1", "pk": number})
		s.shows(s.read(container, azcosmos.NewPartitionKeyNumber(number), "1"), "pk", string(s.encode(number)))
	}
	// The text of a number is another key than the number.
	s.gone(container, key("42"), "1")
}

func itemBooleanKey(s *scene) {
	container := s.container()
	for _, truth := range []bool{true, false} {
		s.create(container, azcosmos.NewPartitionKeyBool(truth), object{"id": "1", "pk": truth})
	}
	s.shows(s.read(container, azcosmos.NewPartitionKeyBool(true), "1"), "pk", "true")
	s.shows(s.read(container, azcosmos.NewPartitionKeyBool(false), "1"), "pk", "false")
	s.gone(container, key("true"), "1")
}

func itemNullKey(s *scene) {
	container := s.container()
	s.create(container, azcosmos.NullPartitionKey, object{"id": "1", "pk": nil})
	s.shows(s.read(container, azcosmos.NullPartitionKey, "1"), "pk", "null")
	s.gone(container, key("null"), "1")
}

func itemHierarchicalKey(s *scene) {
	container := s.container(hierarchical)
	full := azcosmos.NewPartitionKeyString("t1").AppendNumber(7).AppendBool(true)
	other := azcosmos.NewPartitionKeyString("t1").AppendNumber(7).AppendBool(false)
	s.create(container, full, object{"id": "1", "tenant": "t1", "user": 7, "session": true, "n": 1})
	s.create(container, other, object{"id": "1", "tenant": "t1", "user": 7, "session": false, "n": 2})
	s.shows(s.read(container, full, "1"), "n", "1")
	s.shows(s.read(container, other, "1"), "n", "2")
	deleted, err := container.DeleteItem(s.ctx, full, "1", nil)
	s.status(204, deleted.Response, err)
	s.gone(container, full, "1")
	s.read(container, other, "1")
}

func itemKeyMismatch(s *scene) {
	container := s.container()
	_, err := container.CreateItem(s.ctx, key("a"), s.encode(object{"id": "1", "pk": "b"}), nil)
	s.refused(400, err)
	s.gone(container, key("a"), "1")
	s.gone(container, key("b"), "1")
}
