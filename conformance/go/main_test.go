package conformance

import (
	"encoding/json"
	"log"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
)

const sdkModule = "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

// outcomes holds what each scenario came to, in the words of the results file.
var outcomes = struct {
	sync.Mutex
	byName map[string]string
}{byName: map[string]string{}}

func TestMain(m *testing.M) {
	code := m.Run()
	if path := os.Getenv("ORRERY_RESULTS"); path != "" {
		if err := writeResults(path); err != nil {
			log.Fatalf("the results cannot be written: %v", err)
		}
	}
	os.Exit(code)
}

// TestConformance runs every scenario as a subtest, all at once as far as -parallel allows.
func TestConformance(t *testing.T) {
	for name, reason := range unsupported {
		t.Run(name, func(t *testing.T) {
			record(name, "skip: "+reason)
			t.Skip(reason)
		})
	}
	t.Run("regions", func(t *testing.T) {
		t.Parallel()
		// They change the roles of the account's regions: one after the other.
		for name, scenario := range regionScenarios {
			t.Run(name, func(t *testing.T) { run(t, name, scenario) })
		}
	})
	for name, scenario := range allScenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, name, scenario)
		})
	}
}

type scenarios map[string]func(*scene)

func allScenarios() scenarios {
	all := scenarios{}
	for _, group := range []scenarios{
		accountScenarios, databaseScenarios, containerScenarios, throughputScenarios, itemScenarios, itemKeyScenarios,
		itemConditionScenarios, itemLifetimeScenarios, patchScenarios, batchScenarios, partitionScenarios,
		changeFeedScenarios, feedPromiseScenarios, queryScenarios,
	} {
		maps.Copy(all, group)
	}
	return all
}

// run records the outcome also when the scenario ends its goroutine by failing.
func run(t *testing.T, name string, scenario func(*scene)) {
	s := newScene(t)
	defer func() {
		switch {
		case s.reason != "":
			record(name, "fail: "+s.reason)
		case t.Failed():
			record(name, "fail: see the log")
		default:
			record(name, "pass")
		}
	}()
	scenario(s)
}

func record(name, outcome string) {
	outcomes.Lock()
	defer outcomes.Unlock()
	outcomes.byName[name] = outcome
}

func writeResults(path string) error {
	outcomes.Lock()
	defer outcomes.Unlock()
	text, err := json.MarshalIndent(map[string]any{
		"language": "go",
		"sdk":      "azcosmos",
		"version":  sdkVersion(),
		"results":  outcomes.byName,
	}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// sdkVersion is the pinned one: a test binary knows nothing of the modules it was built from.
func sdkVersion() string {
	pins, err := os.ReadFile("go.mod")
	if err != nil {
		return "?"
	}
	_, after, _ := strings.Cut(string(pins), sdkModule+" v")
	version, _, _ := strings.Cut(after, "\n")
	return version
}
