package conformance

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var accountScenarios = scenarios{
	"wrong-key-is-401":                 wrongKey,
	"read-only-key-reads":              readOnlyKeyReads,
	"read-only-key-cannot-write":       readOnlyKeyCannotWrite,
	"https-with-local-authority":       httpsWithLocalAuthority,
	"tls-all-basic-operations":         tlsAllBasicOperations,
	"key-secondary-reads-and-writes":   secondaryKeyReadsAndWrites,
	"key-rotation-refuses-the-old-key": rotationRefusesTheOldKey,
}

func wrongKey(s *scene) {
	other := make([]byte, 64)
	_, _ = rand.Read(other)
	stranger := s.connected(endpoint(), base64.StdEncoding.EncodeToString(other), nil)
	_, err := stranger.CreateDatabase(s.ctx, azcosmos.DatabaseProperties{ID: unique("db")}, nil)
	s.refused(401, err)
}

// holding gives the same container through a client that holds this key.
func holding(
	s *scene, accountKey string, database *azcosmos.DatabaseClient, container *azcosmos.ContainerClient,
) *azcosmos.ContainerClient {
	s.Helper()
	same, err := s.connected(endpoint(), accountKey, nil).NewContainer(database.ID(), container.ID())
	s.ok(err)
	return same
}

func readOnly(s *scene, database *azcosmos.DatabaseClient, container *azcosmos.ContainerClient) *azcosmos.ContainerClient {
	s.Helper()
	return holding(s, os.Getenv("ORRERY_READ_ONLY_KEY"), database, container)
}

func readOnlyKeyReads(s *scene) {
	database, container := s.databaseAndContainer()
	s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 7})
	s.shows(s.read(readOnly(s, database, container), key("a"), "1"), "n", "7")
}

func readOnlyKeyCannotWrite(s *scene) {
	database, container := s.databaseAndContainer()
	s.create(container, key("a"), object{"id": "1", "pk": "a"})
	reader := readOnly(s, database, container)
	_, err := reader.CreateItem(s.ctx, key("a"), s.encode(object{"id": "2", "pk": "a"}), nil)
	s.refused(403, err)
	_, err = reader.DeleteItem(s.ctx, key("a"), "1", nil)
	s.refused(403, err)
	s.read(container, key("a"), "1")
	s.gone(container, key("a"), "2")
}

// overHTTPS makes the scene's client one that trusts the local authority and speaks TLS.
func overHTTPS(s *scene) {
	pem, err := os.ReadFile(os.Getenv("ORRERY_CA"))
	s.ok(err)
	authorities := x509.NewCertPool()
	s.check(authorities.AppendCertsFromPEM(pem), "the authority's certificate is not PEM")
	transport := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}}
	s.Cleanup(transport.CloseIdleConnections)
	secure := strings.Replace(endpoint(), "http://", "https://", 1)
	s.client = s.connected(secure, os.Getenv("ORRERY_KEY"), &azcosmos.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: transport},
	})
}

func httpsWithLocalAuthority(s *scene) {
	overHTTPS(s)
	container := s.container()
	created := s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 1})
	overTLS(s, created.Response)
	read, err := container.ReadItem(s.ctx, key("a"), "1", nil)
	s.status(200, read.Response, err)
	overTLS(s, read.Response)
	s.shows(s.decode(read.Value), "n", "1")
	deleted, err := container.DeleteItem(s.ctx, key("a"), "1", nil)
	s.status(204, deleted.Response, err)
	overTLS(s, deleted.Response)
}

func overTLS(s *scene, response azcosmos.Response) {
	s.Helper()
	s.check(response.RawResponse.TLS != nil, "expected TLS, the request went to %s", response.RawResponse.Request.URL)
}

func tlsAllBasicOperations(s *scene) {
	overHTTPS(s)
	container := s.container()
	item := func(id string, n int) []byte { return s.encode(object{"id": id, "pk": "a", "n": n}) }
	overTLS(s, s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 1}).Response)
	upserted, err := container.UpsertItem(s.ctx, key("a"), item("2", 2), nil)
	s.status(201, upserted.Response, err)
	replaced, err := container.ReplaceItem(s.ctx, key("a"), "1", item("1", 10), nil)
	s.status(200, replaced.Response, err)
	var operations azcosmos.PatchOperations
	operations.AppendIncrement("/n", 1)
	patched, err := container.PatchItem(s.ctx, key("a"), "1", operations, nil)
	s.status(200, patched.Response, err)
	batch := container.NewTransactionalBatch(key("a"))
	for n, id := range []string{"3", "4", "5", "6", "7"} {
		batch.CreateItem(item(id, n+3), nil)
	}
	s.execute(container, batch, 200, 201, 201, 201, 201, 201)
	deleted, err := container.DeleteItem(s.ctx, key("a"), "2", nil)
	s.status(204, deleted.Response, err)
	for _, answer := range []azcosmos.Response{upserted.Response, replaced.Response, patched.Response, deleted.Response} {
		overTLS(s, answer)
	}
	s.gone(container, key("a"), "2")
	expectRemainders(s, container)
}

// expectRemainders looks at what the walk left, by a query in pages and by the change feed.
func expectRemainders(s *scene, container *azcosmos.ContainerClient) {
	s.Helper()
	var rows []string
	nPages := 0
	options := azcosmos.QueryOptions{PageSizeHint: 2}
	pager := container.NewQueryItemsPager("SELECT VALUE c.n FROM c", azcosmos.NewPartitionKey(), &options)
	for ; pager.More(); nPages++ {
		page, err := pager.NextPage(s.ctx)
		s.ok(err)
		overTLS(s, page.Response)
		s.check(len(page.Items) <= 2, "a page of %d rows", len(page.Items))
		for _, row := range page.Items {
			rows = append(rows, string(row))
		}
	}
	slices.Sort(rows)
	s.check(slices.Equal(rows, []string{"11", "3", "4", "5", "6", "7"}), "the query gave %v", rows)
	s.check(nPages >= 3, "%d rows in %d pages", len(rows), nPages)
	found, _ := changes(s, container, azcosmos.ChangeFeedOptions{})
	s.same(found, []string{"1:11", "3:3", "4:4", "5:5", "6:6", "7:7"})
}

// secondaryKey is held by who rotates it: each rotation makes worthless what another scenario uses.
var secondaryKey sync.Mutex

func secondaryKeyReadsAndWrites(s *scene) {
	secondaryKey.Lock()
	defer secondaryKey.Unlock()
	database, container := s.databaseAndContainer()
	same := holding(s, rotateSecondaryKey(s), database, container)
	s.create(same, key("a"), object{"id": "1", "pk": "a", "n": 7})
	s.shows(s.read(same, key("a"), "1"), "n", "7")
	deleted, err := same.DeleteItem(s.ctx, key("a"), "1", nil)
	s.status(204, deleted.Response, err)
	s.gone(container, key("a"), "1")
}

func rotationRefusesTheOldKey(s *scene) {
	secondaryKey.Lock()
	defer secondaryKey.Unlock()
	database, container := s.databaseAndContainer()
	s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 7})
	oldKey := rotateSecondaryKey(s)
	old := holding(s, oldKey, database, container)
	s.shows(s.read(old, key("a"), "1"), "n", "7")
	newKey := rotateSecondaryKey(s)
	for _, refused := range []*azcosmos.ContainerClient{old, holding(s, oldKey, database, container)} {
		_, err := refused.ReadItem(s.ctx, key("a"), "1", nil)
		s.refused(401, err)
	}
	s.shows(s.read(holding(s, newKey, database, container), key("a"), "1"), "n", "7")
	s.shows(s.read(container, key("a"), "1"), "n", "7")
}
