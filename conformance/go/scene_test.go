package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// Longest wait for anything that happens by itself, such as an expiry.
const patience = 60 * time.Second

// scene is what one scenario works with: a client of its own server account and checks that say what went wrong.
type scene struct {
	*testing.T
	ctx    context.Context
	client *azcosmos.Client
	reason string
}

var sharedClient = sync.OnceValues(func() (*azcosmos.Client, error) {
	return connect(endpoint(), os.Getenv("ORRERY_KEY"), nil)
})

func newScene(t *testing.T) *scene {
	client, err := sharedClient()
	if err != nil {
		t.Fatal(err)
	}
	return &scene{T: t, ctx: t.Context(), client: client}
}

func endpoint() string { return os.Getenv("ORRERY_ENDPOINT") }

func connect(endpoint, key string, options *azcosmos.ClientOptions) (*azcosmos.Client, error) {
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		return nil, err
	}
	return azcosmos.NewClientWithKey(endpoint, credential, options)
}

// connected gives a client that differs from the shared one.
func (s *scene) connected(endpoint, key string, options *azcosmos.ClientOptions) *azcosmos.Client {
	s.Helper()
	client, err := connect(endpoint, key, options)
	s.ok(err)
	s.Cleanup(client.Close)
	return client
}

// rulers are what the SDK draws between the parts of an error; a reason is one line.
var rulers = strings.NewReplacer(strings.Repeat("-", 80), "")

func (s *scene) fail(format string, arguments ...any) {
	s.Helper()
	text := fmt.Sprintf(format, arguments...)
	s.reason = strings.Join(strings.Fields(rulers.Replace(text)), " ")
	s.Fatal(text)
}

func (s *scene) check(holds bool, format string, arguments ...any) {
	s.Helper()
	if !holds {
		s.fail(format, arguments...)
	}
}

func (s *scene) ok(err error) {
	s.Helper()
	if err != nil {
		s.fail("expected success, got %v", err)
	}
}

// status checks an answer's HTTP status together with its error.
func (s *scene) status(wanted int, response azcosmos.Response, err error) {
	s.Helper()
	s.ok(err)
	s.check(response.RawResponse.StatusCode == wanted, "expected %d, got %d", wanted, response.RawResponse.StatusCode)
}

func (s *scene) refused(wanted int, err error) {
	s.Helper()
	s.check(err != nil, "expected %d, got success", wanted)
	s.check(statusOf(err) == wanted, "expected %d, got %v", wanted, err)
}

// statusOf gives 0 for an error that is not the server's answer.
func statusOf(err error) int {
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// eventually waits for a condition that comes true by itself.
func (s *scene) eventually(what string, condition func() bool) {
	s.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if condition() {
			return
		}
	}
	s.fail("%s did not happen within %v", what, patience)
}

func unique(prefix string) string {
	random := make([]byte, 8)
	_, _ = rand.Read(random)
	return prefix + "-go-" + hex.EncodeToString(random)
}

func (s *scene) database() *azcosmos.DatabaseClient {
	s.Helper()
	return s.databaseNamed(unique("db"), nil)
}

// databaseNamed creates a database that goes away with the scene.
func (s *scene) databaseNamed(id string, options *azcosmos.CreateDatabaseOptions) *azcosmos.DatabaseClient {
	s.Helper()
	created, err := s.client.CreateDatabase(s.ctx, azcosmos.DatabaseProperties{ID: id}, options)
	s.status(201, created.Response, err)
	database, err := s.client.NewDatabase(id)
	s.ok(err)
	s.Cleanup(func() {
		// The context of the test has ended by now; the scene may have deleted the database itself.
		if _, err := database.Delete(context.Background(), nil); err != nil && statusOf(err) != 404 {
			s.Errorf("database %s cannot be deleted: %v", id, err)
		}
	})
	return database
}

// container creates a container with the key /pk in a database of its own, as changed by the given functions.
func (s *scene) container(changes ...func(*azcosmos.ContainerProperties)) *azcosmos.ContainerClient {
	s.Helper()
	_, container := s.databaseAndContainer(changes...)
	return container
}

func (s *scene) databaseAndContainer(
	changes ...func(*azcosmos.ContainerProperties),
) (*azcosmos.DatabaseClient, *azcosmos.ContainerClient) {
	s.Helper()
	database := s.database()
	return database, s.containerIn(database, nil, changes...)
}

func (s *scene) containerIn(
	database *azcosmos.DatabaseClient,
	throughput *azcosmos.ThroughputProperties,
	changes ...func(*azcosmos.ContainerProperties),
) *azcosmos.ContainerClient {
	s.Helper()
	properties := containerProperties(changes...)
	created, err := database.CreateContainer(s.ctx, properties, &azcosmos.CreateContainerOptions{
		ThroughputProperties: throughput,
	})
	s.status(201, created.Response, err)
	container, err := database.NewContainer(properties.ID)
	s.ok(err)
	return container
}

func containerProperties(changes ...func(*azcosmos.ContainerProperties)) azcosmos.ContainerProperties {
	properties := azcosmos.ContainerProperties{
		ID: unique("items"),
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{
			Kind: azcosmos.PartitionKeyKindHash, Paths: []string{"/pk"}, Version: 2,
		},
	}
	for _, change := range changes {
		change(&properties)
	}
	return properties
}

func (s *scene) properties(container *azcosmos.ContainerClient) *azcosmos.ContainerProperties {
	s.Helper()
	read, err := container.Read(s.ctx, nil)
	s.status(200, read.Response, err)
	return read.ContainerProperties
}

// object is an item as JSON sees it; numbers stay as they are written.
type object map[string]any

func (s *scene) encode(value any) []byte {
	s.Helper()
	text, err := json.Marshal(value)
	s.ok(err)
	return text
}

func (s *scene) decode(text []byte) object {
	s.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var value object
	s.ok(decoder.Decode(&value))
	return value
}

// shows checks one property of an item by its JSON text.
func (s *scene) shows(item object, property, wanted string) {
	s.Helper()
	value, present := item[property]
	s.check(present, "expected %s to be %s, it is missing", property, wanted)
	s.check(string(s.encode(value)) == wanted, "expected %s to be %s, got %s", property, wanted, s.encode(value))
}

func key(text string) azcosmos.PartitionKey { return azcosmos.NewPartitionKeyString(text) }

var withContent = &azcosmos.ItemOptions{EnableContentResponseOnWrite: true}

func (s *scene) create(
	container *azcosmos.ContainerClient, partitionKey azcosmos.PartitionKey, item object,
) azcosmos.ItemResponse {
	s.Helper()
	created, err := container.CreateItem(s.ctx, partitionKey, s.encode(item), withContent)
	s.status(201, created.Response, err)
	return created
}

func (s *scene) read(container *azcosmos.ContainerClient, partitionKey azcosmos.PartitionKey, id string) object {
	s.Helper()
	read, err := container.ReadItem(s.ctx, partitionKey, id, nil)
	s.status(200, read.Response, err)
	return s.decode(read.Value)
}

func (s *scene) gone(container *azcosmos.ContainerClient, partitionKey azcosmos.PartitionKey, id string) {
	s.Helper()
	_, err := container.ReadItem(s.ctx, partitionKey, id, nil)
	s.refused(404, err)
}
