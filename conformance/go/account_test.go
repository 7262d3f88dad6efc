package conformance

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var accountScenarios = scenarios{
	"wrong-key-is-401":           wrongKey,
	"read-only-key-reads":        readOnlyKeyReads,
	"read-only-key-cannot-write": readOnlyKeyCannotWrite,
	"https-with-local-authority": httpsWithLocalAuthority,
}

func wrongKey(s *scene) {
	other := make([]byte, 64)
	_, _ = rand.Read(other)
	stranger := s.connected(endpoint(), base64.StdEncoding.EncodeToString(other), nil)
	_, err := stranger.CreateDatabase(s.ctx, azcosmos.DatabaseProperties{ID: unique("db")}, nil)
	s.refused(401, err)
}

// readOnly gives the same container through a client that holds the read-only key.
func readOnly(s *scene, database *azcosmos.DatabaseClient, container *azcosmos.ContainerClient) *azcosmos.ContainerClient {
	reader := s.connected(endpoint(), os.Getenv("ORRERY_READ_ONLY_KEY"), nil)
	same, err := reader.NewContainer(database.ID(), container.ID())
	s.ok(err)
	return same
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

func httpsWithLocalAuthority(s *scene) {
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
