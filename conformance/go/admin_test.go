package conformance

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// administer sends a signed administration request: empty resource type, the path as the link.
func administer(s *scene, verb, path string, query url.Values, body, answer any) {
	s.Helper()
	administerAt(s, endpoint(), verb, path, query, body, answer)
}

func administerAt(s *scene, server, verb, path string, query url.Values, body, answer any) {
	s.Helper()
	target := server + path + "?" + query.Encode()
	request, err := http.NewRequestWithContext(s.ctx, verb, target, bytes.NewReader(s.encode(body)))
	s.ok(err)
	date := time.Now().UTC().Format(http.TimeFormat)
	secret, err := base64.StdEncoding.DecodeString(os.Getenv("ORRERY_KEY"))
	s.ok(err)
	signer := hmac.New(sha256.New, secret)
	signer.Write([]byte(strings.ToLower(verb) + "\n\n" + path + "\n" + strings.ToLower(date) + "\n\n"))
	signature := base64.StdEncoding.EncodeToString(signer.Sum(nil))
	request.Header.Set("authorization", url.QueryEscape("type=master&ver=1.0&sig="+signature))
	request.Header.Set("x-ms-date", date)
	request.Header.Set("x-ms-version", "2020-07-15")

	response, err := http.DefaultClient.Do(request)
	s.ok(err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	s.ok(err)
	s.check(response.StatusCode == 200, "%s %s answered %d: %s", verb, path, response.StatusCode, text)
	s.ok(json.Unmarshal(text, answer))
}

// partition is one of a container, by its number and where it begins.
type partition struct {
	Partition    int
	MinInclusive string
}

// partitionsOf gives the partitions from left to right.
func partitionsOf(s *scene, database *azcosmos.DatabaseClient, container *azcosmos.ContainerClient) []int {
	s.Helper()
	var answer struct {
		Partitions []partition
	}
	query := url.Values{"database": {database.ID()}, "container": {container.ID()}}
	administer(s, "GET", "_orrery/v1/partitions", query, nil, &answer)
	slices.SortFunc(answer.Partitions, func(one, other partition) int {
		return strings.Compare(one.MinInclusive, other.MinInclusive)
	})
	var partitions []int
	for _, entry := range answer.Partitions {
		partitions = append(partitions, entry.Partition)
	}
	return partitions
}

// rotateSecondaryKey gives the new secondary key; the one before is worth nothing from now on.
func rotateSecondaryKey(s *scene) string {
	s.Helper()
	var answer struct{ Key string }
	administer(s, "POST", "_orrery/v1/keys/secondary/rotate", nil, object{}, &answer)
	return answer.Key
}

// split returns when the split is over.
func split(s *scene, database *azcosmos.DatabaseClient, container *azcosmos.ContainerClient, partition int) {
	s.Helper()
	form := object{"database": database.ID(), "container": container.ID(), "partition": partition}
	administer(s, "POST", "_orrery/v1/partitions/split", nil, form, &struct{}{})
}

// merge makes the two leftmost partitions one.
func merge(s *scene, database *azcosmos.DatabaseClient, container *azcosmos.ContainerClient) {
	s.Helper()
	pair := partitionsOf(s, database, container)[:2]
	form := object{"database": database.ID(), "container": container.ID(), "partitions": pair}
	administer(s, "POST", "_orrery/v1/partitions/merge", nil, form, &struct{}{})
}
