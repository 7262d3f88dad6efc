package conformance

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// An account of three regions: who answers, and what a change of the write region shows. One after the other.
var regionScenarios = scenarios{
	"region-reads-in-preferred":     regionReadsInPreferred,
	"region-writes-in-write-region": regionWritesInWriteRegion,
	"region-session":                regionSession,
	"region-session-cut-off":        regionSessionCutOff,
	"region-down":                   regionDown,
	"region-planned-failover":       regionPlannedFailover,
	"region-forced-failover":        regionForcedFailover,
	"region-added-and-removed":      regionAddedAndRemoved,
}

func named(kind string, n int) []string {
	var names []string
	for number := range n {
		names = append(names, fmt.Sprintf("%s %d", kind, number))
	}
	return names
}

func regionReadsInPreferred(s *scene) {
	f := newFleet(s)
	names := named("item", 10)
	fillNamed(s, f.seenFrom(writeRegion), names)
	f.waitLevel()
	for _, region := range allRegions {
		container := f.seenFrom(region)
		f.answeredBy(region, "read_item", len(names), allRegions, func() {
			for _, name := range names {
				s.read(container, key("key "+name), name)
			}
		})
	}
}

func regionWritesInWriteRegion(s *scene) {
	f := newFleet(s)
	for _, region := range allRegions {
		container := f.seenFrom(region)
		f.answeredBy(writeRegion, "create_item", 5, allRegions, func() { fillNamed(s, container, named(region, 5)) })
	}
}

// checkSession lets a region lag and reads there what was just written. The SDK leaves session tokens to its caller.
func checkSession(s *scene, lag object, answering string) {
	s.Helper()
	f := newFleet(s)
	container := f.seenFrom(lastRegion)
	s.create(container, key("a"), object{"id": "1", "pk": "a", "n": 0})
	f.waitLevel()
	f.withLinks(lag, []string{lastRegion}, func() {
		for n := 1; n < 4; n++ {
			replaced, err := container.ReplaceItem(s.ctx, key("a"), "1", s.encode(object{"id": "1", "pk": "a", "n": n}), nil)
			s.ok(err)
			f.answeredBy(answering, "read_item", 1, allRegions, func() {
				read, err := container.ReadItem(s.ctx, key("a"), "1", &azcosmos.ItemOptions{SessionToken: replaced.SessionToken})
				s.status(200, read.Response, err)
				s.shows(s.decode(read.Value), "n", fmt.Sprint(n))
			})
		}
	})
}

func regionSession(s *scene) { checkSession(s, object{"latencyMs": 100}, lastRegion) }

func regionSessionCutOff(s *scene) { checkSession(s, object{"paused": true}, writeRegion) }

func regionDown(s *scene) {
	f := newFleet(s)
	container := f.seenFrom(lastRegion)
	fillNamed(s, container, []string{"1"})
	f.waitLevel()
	f.answeredBy(lastRegion, "read_item", 1, allRegions, func() { s.read(container, key("key 1"), "1") })
	f.manageRegion(lastRegion, "stop", object{"mode": "unavailable"}, &struct{}{})
	defer f.manageRegion(lastRegion, "start", object{}, &struct{}{})
	f.answeredBy(writeRegion, "read_item", 5, []string{writeRegion, nextRegion}, func() {
		for range 5 {
			s.read(container, key("key 1"), "1")
		}
	})
}

func regionAddedAndRemoved(s *scene) {
	f := newFleet(s)
	fillNamed(s, f.seenFrom(writeRegion), []string{"1"})
	f.manage("POST", "regions", object{"region": addedRegion}, &struct{}{})
	defer f.forget(addedRegion)
	container := f.seenFrom(addedRegion)
	readFive := func() {
		for range 5 {
			s.read(container, key("key 1"), "1")
		}
	}
	f.answeredBy(addedRegion, "read_item", 0, allRegions, readFive)
	f.answeredBy(writeRegion, "read_item", 10, allRegions, func() {
		f.whileRemoved(addedRegion, readFive)
		readFive()
	})
}

// load creates items, and reads each back, until stopped; it notes what was acknowledged and what went wrong.
type load struct {
	sync.Mutex
	acknowledged []string
	errors       []string
	stopped      atomic.Bool
	workers      sync.WaitGroup
}

func startLoad(s *scene, container *azcosmos.ContainerClient) *load {
	l := &load{}
	for worker := range 4 {
		l.workers.Go(func() {
			for number := 0; !l.stopped.Load(); number++ {
				l.write(s, container, fmt.Sprintf("%d-%d", worker, number))
			}
		})
	}
	return l
}

func (l *load) write(s *scene, container *azcosmos.ContainerClient, name string) {
	partitionKey := key("key " + name)
	created, err := container.CreateItem(s.ctx, partitionKey, s.encode(object{"id": name, "pk": "key " + name}), nil)
	if err == nil {
		l.Lock()
		l.acknowledged = append(l.acknowledged, name)
		l.Unlock()
		_, err = container.ReadItem(s.ctx, partitionKey, name, &azcosmos.ItemOptions{SessionToken: created.SessionToken})
	}
	if err != nil {
		l.Lock()
		l.errors = append(l.errors, name+": "+err.Error())
		l.Unlock()
	}
}

func (l *load) count() int {
	l.Lock()
	defer l.Unlock()
	return len(l.acknowledged)
}

func (l *load) stop() {
	l.stopped.Store(true)
	l.workers.Wait()
}

func regionPlannedFailover(s *scene) {
	f := newFleet(s)
	load := startLoad(s, f.seenFrom(lastRegion))
	defer load.stop()
	s.eventually("load", func() bool { return load.count() >= 40 })
	for _, writer := range []string{nextRegion, writeRegion} {
		before := f.answered("create_item", writer)
		f.failOver(writer)
		s.eventually("writing in "+writer, func() bool { return f.answered("create_item", writer) >= before+40 })
	}
	load.stop()
	s.check(len(load.errors) == 0, "the application saw %v", load.errors)
	f.waitLevel()
	slices.Sort(load.acknowledged)
	for _, region := range allRegions {
		found := f.idsSeenFrom(region)
		s.check(slices.Equal(found, load.acknowledged), "%s has %v of %v", region, found, load.acknowledged)
	}
}

func regionForcedFailover(s *scene) {
	f := newFleet(s)
	kept, lost, later := named("kept", 10), named("lost", 10), named("later", 10)
	container := f.seenFrom(lastRegion)
	fillNamed(s, container, kept)
	f.waitLevel()
	f.withLinks(object{"cut": true}, []string{nextRegion, lastRegion}, func() {
		fillNamed(s, container, lost)
		var loss struct{ LostTransactions int }
		f.manageRegion(writeRegion, "offline", object{}, &loss)
		s.check(loss.LostTransactions == len(lost), "%d transactions are reported lost", loss.LostTransactions)
	})
	for _, name := range later {
		// As an application would after a failover it was not spared.
		s.eventually("writing elsewhere", func() bool {
			_, err := container.UpsertItem(s.ctx, key("key "+name), s.encode(object{"id": name, "pk": "key " + name}), nil)
			return err == nil
		})
	}
	f.waitLevel()
	expected := slices.Sorted(slices.Values(append(kept, later...)))
	for _, region := range []string{nextRegion, lastRegion} {
		s.check(slices.Equal(f.idsSeenFrom(region), expected), "%s has %v", region, f.idsSeenFrom(region))
	}
	f.manageRegion(writeRegion, "online", object{}, &struct{}{})
	f.failOver(writeRegion)
	s.check(slices.Equal(f.idsSeenFrom(writeRegion), expected), "it returned with %v", f.idsSeenFrom(writeRegion))
}
