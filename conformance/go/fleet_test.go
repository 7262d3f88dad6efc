package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// The account of three regions: the first takes writes, the second is next in line.
const (
	writeRegion = "West US"
	nextRegion  = "North Europe"
	lastRegion  = "Southeast Asia"
	// Not one of them, for those who add one.
	addedRegion = "Japan East"
)

var allRegions = []string{writeRegion, nextRegion, lastRegion}

// fleet is the account of three regions: its clients, its administration, and who answered what.
type fleet struct {
	*scene
	endpoint  string
	endpoints map[string]string
	database  string
}

// newFleet gives the fleet with a new container in it, which every region has.
func newFleet(s *scene) *fleet {
	s.Helper()
	f := &fleet{scene: s, endpoint: os.Getenv("ORRERY_REGIONS_ENDPOINT")}
	s.ok(json.Unmarshal([]byte(os.Getenv("ORRERY_REGIONS")), &f.endpoints))
	s.client = s.connected(f.endpoint, os.Getenv("ORRERY_KEY"), nil)
	database := s.database()
	f.database = database.ID()
	s.containerIn(database, nil, func(properties *azcosmos.ContainerProperties) { properties.ID = "items" })
	f.waitLevel()
	return f
}

// seenFrom gives the container as a new client sees it that prefers this region, then the others in their order.
func (f *fleet) seenFrom(region string) *azcosmos.ContainerClient {
	f.Helper()
	others := slices.DeleteFunc(slices.Clone(allRegions), func(other string) bool { return other == region })
	client := f.connected(f.endpoint, os.Getenv("ORRERY_KEY"), &azcosmos.ClientOptions{
		PreferredRegions: append([]string{region}, others...),
	})
	container, err := client.NewContainer(f.database, "items")
	f.ok(err)
	return container
}

func (f *fleet) manage(verb, path string, body, answer any) {
	f.Helper()
	administerAt(f.scene, f.endpoint, verb, "_orrery/v1/"+path, nil, body, answer)
}

func (f *fleet) manageRegion(region, action string, body, answer any) {
	f.Helper()
	f.manage("POST", "regions/"+url.PathEscape(region)+"/"+action, body, answer)
}

func (f *fleet) failOver(region string) {
	f.Helper()
	f.manage("POST", "failover", object{"region": region}, &struct{}{})
}

// forget removes a region unless it is gone already.
func (f *fleet) forget(region string) {
	f.Helper()
	var answer struct {
		Regions []struct{ Name string }
	}
	f.manage("GET", "regions", nil, &answer)
	for _, known := range answer.Regions {
		if known.Name == region {
			f.manage("DELETE", "regions/"+url.PathEscape(region), nil, &struct{}{})
		}
	}
}

// whileRemoved removes a region, and works while it tells its clients to go elsewhere.
func (f *fleet) whileRemoved(region string, work func()) {
	f.Helper()
	var removal sync.WaitGroup
	removal.Go(func() {
		query := url.Values{"drainMs": {"2000"}}
		administerAt(f.scene, f.endpoint, "DELETE", "_orrery/v1/regions/"+url.PathEscape(region), query, nil, &struct{}{})
	})
	f.eventually("draining", func() bool {
		var answer struct {
			Regions []struct{ Name, State string }
		}
		f.manage("GET", "regions", nil, &answer)
		return slices.Contains(answer.Regions, struct{ Name, State string }{region, "draining"})
	})
	work()
	removal.Wait()
}

// waitLevel waits until every region that is online has everything.
func (f *fleet) waitLevel() {
	f.Helper()
	f.eventually("replication", func() bool {
		var answer struct {
			Regions []struct{ LagTransactionsTotal int }
		}
		f.manage("GET", "regions", nil, &answer)
		for _, region := range answer.Regions {
			if region.LagTransactionsTotal > 0 {
				return false
			}
		}
		return true
	})
}

// withLinks lets the way from the write region to others behave like this for a while.
func (f *fleet) withLinks(settings object, others []string, work func()) {
	f.Helper()
	set := func(settings object) {
		for _, to := range others {
			link := object{"from": writeRegion, "to": to}
			maps.Copy(link, settings)
			f.manage("PUT", "links", link, &struct{}{})
		}
	}
	set(settings)
	defer set(object{})
	work()
}

// answered tells how many requests a region has answered with success, by its own count.
func (f *fleet) answered(operation, region string) int {
	f.Helper()
	response, err := http.Get(f.endpoints[region] + "metrics")
	f.ok(err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	f.ok(err)
	pattern := regexp.MustCompile(fmt.Sprintf(`orrery_requests_total{operation="%s",status="2\d\d"} (\d+)`, operation))
	total := 0
	for _, match := range pattern.FindAllStringSubmatch(string(text), -1) {
		count, err := strconv.Atoi(match[1])
		f.ok(err)
		total += count
	}
	return total
}

// answeredBy checks that one of these regions answers all the work, so many times, and the others nothing.
func (f *fleet) answeredBy(region string, operation string, count int, among []string, work func()) {
	f.Helper()
	before := map[string]int{}
	for _, other := range among {
		before[other] = f.answered(operation, other)
	}
	work()
	for _, other := range among {
		expected := 0
		if other == region {
			expected = count
		}
		found := f.answered(operation, other) - before[other]
		f.check(found == expected, "%s answered %d times instead of %d", other, found, expected)
	}
}

// fillNamed creates an item for each name, with a key of its own.
func fillNamed(s *scene, container *azcosmos.ContainerClient, names []string) {
	s.Helper()
	for _, name := range names {
		s.create(container, key("key "+name), object{"id": name, "pk": "key " + name})
	}
}

// idsSeenFrom gives the ids of all items as a region has them, sorted.
func (f *fleet) idsSeenFrom(region string) []string {
	f.Helper()
	var ids []string
	pager := f.seenFrom(region).NewQueryItemsPager("SELECT VALUE c.id FROM c", azcosmos.NewPartitionKey(), nil)
	for pager.More() {
		page, err := pager.NextPage(f.ctx)
		f.ok(err)
		for _, row := range page.Items {
			ids = append(ids, strings.Trim(string(row), `"`))
		}
	}
	slices.Sort(ids)
	return ids
}
