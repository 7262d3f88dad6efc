package conformance

import (
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var throughputScenarios = scenarios{
	"container-manual-throughput":    containerManualThroughput,
	"container-autoscale-throughput": containerAutoscaleThroughput,
	"throughput-manual-to-autoscale": throughputManualToAutoscale,
	"throughput-autoscale-to-manual": throughputAutoscaleToManual,
}

func containerManualThroughput(s *scene) {
	throughput := azcosmos.NewManualThroughputProperties(600)
	container := s.containerIn(s.database(), &throughput)
	expect := func(wanted int32) {
		s.Helper()
		read, err := container.ReadThroughput(s.ctx, nil)
		s.status(200, read.Response, err)
		units, manual := read.ThroughputProperties.ManualThroughput()
		s.check(manual && units == wanted, "expected %d manual, got %d (manual %v)", wanted, units, manual)
		_, autoscale := read.ThroughputProperties.AutoscaleMaxThroughput()
		s.check(!autoscale, "manual throughput shows an autoscale maximum")
	}
	expect(600)
	replaced, err := container.ReplaceThroughput(s.ctx, azcosmos.NewManualThroughputProperties(800), nil)
	s.status(200, replaced.Response, err)
	expect(800)
}

func containerAutoscaleThroughput(s *scene) {
	throughput := azcosmos.NewAutoscaleThroughputProperties(4000)
	container := s.containerIn(s.database(), &throughput)
	expect := func(wanted int32) {
		s.Helper()
		read, err := container.ReadThroughput(s.ctx, nil)
		s.status(200, read.Response, err)
		units, autoscale := read.ThroughputProperties.AutoscaleMaxThroughput()
		s.check(autoscale && units == wanted, "expected %d autoscale, got %d (autoscale %v)", wanted, units, autoscale)
	}
	expect(4000)
	replaced, err := container.ReplaceThroughput(s.ctx, azcosmos.NewAutoscaleThroughputProperties(5000), nil)
	s.status(200, replaced.Response, err)
	expect(5000)
}

// migrate replaces throughput by that of the other mode, which a header must ask for.
func migrate(s *scene, container *azcosmos.ContainerClient, header string, throughput azcosmos.ThroughputProperties) {
	s.Helper()
	asking := policy.WithHTTPHeader(s.ctx, http.Header{header: {"true"}})
	replaced, err := container.ReplaceThroughput(asking, throughput, nil)
	s.status(200, replaced.Response, err)
}

func throughputManualToAutoscale(s *scene) {
	throughput := azcosmos.NewManualThroughputProperties(600)
	container := s.containerIn(s.database(), &throughput)
	migrate(s, container, "x-ms-cosmos-migrate-offer-to-autopilot", azcosmos.NewAutoscaleThroughputProperties(4000))
	read, err := container.ReadThroughput(s.ctx, nil)
	s.status(200, read.Response, err)
	units, autoscale := read.ThroughputProperties.AutoscaleMaxThroughput()
	s.check(autoscale && units == 4000, "expected 4000 autoscale, got %d (autoscale %v)", units, autoscale)
}

func throughputAutoscaleToManual(s *scene) {
	throughput := azcosmos.NewAutoscaleThroughputProperties(4000)
	container := s.containerIn(s.database(), &throughput)
	migrate(s, container, "x-ms-cosmos-migrate-offer-to-manual-throughput", azcosmos.NewManualThroughputProperties(700))
	read, err := container.ReadThroughput(s.ctx, nil)
	s.status(200, read.Response, err)
	units, manual := read.ThroughputProperties.ManualThroughput()
	s.check(manual && units == 700, "expected 700 manual, got %d (manual %v)", units, manual)
	_, autoscale := read.ThroughputProperties.AutoscaleMaxThroughput()
	s.check(!autoscale, "manual throughput shows an autoscale maximum")
}
