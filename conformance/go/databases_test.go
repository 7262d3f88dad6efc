package conformance

import (
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var databaseScenarios = scenarios{
	"database-create-read-delete":  databaseCreateReadDelete,
	"database-create-twice-is-409": databaseCreateTwice,
	"database-missing-is-404":      databaseMissing,
	"database-list":                databaseList,
	"database-query-by-id":         databaseQueryByID,
	"database-shared-throughput":   databaseSharedThroughput,
	"database-name-invalid-is-400": databaseNameInvalid,
}

func databaseCreateReadDelete(s *scene) {
	id := unique("db")
	database := s.databaseNamed(id, nil)
	read, err := database.Read(s.ctx, nil)
	s.status(200, read.Response, err)
	shown := read.DatabaseProperties
	s.check(shown.ID == id, "expected id %s, got %s", id, shown.ID)
	s.check(shown.ResourceID != "" && shown.SelfLink == "dbs/"+shown.ResourceID+"/", "_self %s of _rid %s", shown.SelfLink, shown.ResourceID)
	s.check(*shown.ETag == read.ETag, "etag header %s, _etag %s", read.ETag, *shown.ETag)
	s.check(shown.LastModified.Unix() > 0, "there is no _ts")

	deleted, err := database.Delete(s.ctx, nil)
	s.status(204, deleted.Response, err)
	_, err = database.Read(s.ctx, nil)
	s.refused(404, err)
}

func databaseCreateTwice(s *scene) {
	database := s.database()
	_, err := s.client.CreateDatabase(s.ctx, azcosmos.DatabaseProperties{ID: database.ID()}, nil)
	s.refused(409, err)
}

func databaseMissing(s *scene) {
	database, err := s.client.NewDatabase(unique("missing"))
	s.ok(err)
	_, err = database.Read(s.ctx, nil)
	s.refused(404, err)
	_, err = database.Delete(s.ctx, nil)
	s.refused(404, err)
}

// databaseList asks as this SDK lists: by a query without a filter.
func databaseList(s *scene) {
	first, second := s.database().ID(), s.database().ID()
	found := foundDatabases(s, "SELECT * FROM d", nil)
	s.check(found[first] == 1 && found[second] == 1, "of two databases %d and %d were listed", found[first], found[second])
}

func databaseQueryByID(s *scene) {
	wanted, other := s.database().ID(), s.database().ID()
	found := foundDatabases(s, "SELECT * FROM d WHERE d.id = @id", []azcosmos.QueryParameter{{Name: "@id", Value: wanted}})
	s.check(len(found) == 1 && found[wanted] == 1, "expected %s alone, got %v", wanted, found)
	found = foundDatabases(s, "SELECT * FROM d WHERE d.id = '"+other+"'", nil)
	s.check(len(found) == 1 && found[other] == 1, "expected %s alone, got %v", other, found)
}

// foundDatabases counts how often each name was given.
func foundDatabases(s *scene, query string, parameters []azcosmos.QueryParameter) map[string]int {
	s.Helper()
	found := map[string]int{}
	pager := s.client.NewQueryDatabasesPager(query, &azcosmos.QueryDatabasesOptions{QueryParameters: parameters})
	for pager.More() {
		page, err := pager.NextPage(s.ctx)
		s.status(200, page.Response, err)
		for _, database := range page.Databases {
			found[database.ID]++
		}
	}
	return found
}

func databaseSharedThroughput(s *scene) {
	throughput := azcosmos.NewManualThroughputProperties(500)
	database := s.databaseNamed(unique("db"), &azcosmos.CreateDatabaseOptions{ThroughputProperties: &throughput})
	read, err := database.ReadThroughput(s.ctx, nil)
	s.status(200, read.Response, err)
	units, manual := read.ThroughputProperties.ManualThroughput()
	s.check(manual && units == 500, "expected 500 manual, got %d (manual %v)", units, manual)
}

func databaseNameInvalid(s *scene) {
	_, err := s.client.CreateDatabase(s.ctx, azcosmos.DatabaseProperties{ID: unique("a") + "/b"}, nil)
	s.refused(400, err)
}
