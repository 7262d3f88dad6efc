package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.implementation.OperationKind;
import com.azure.cosmos.models.CosmosConflictProperties;
import com.azure.cosmos.models.CosmosConflictRequestOptions;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** An account of three regions: who answers, and what a change of the write region shows. One after the other. */
@Execution(ExecutionMode.SAME_THREAD)
class Regions extends Scene {
    private static List<String> named(String kind, int count) {
        return IntStream.range(0, count).mapToObj(number -> kind + " " + number).toList();
    }

    private static PartitionKey keyOf(String name) {
        return new PartitionKey("key " + name);
    }

    private static void fill(CosmosContainer container, List<String> names) {
        names.forEach(name -> create(container, keyOf(name), item(name, "key " + name)));
    }

    @Test
    @DisplayName("region-reads-in-preferred")
    void readsInPreferred() throws Exception {
        try (Fleet fleet = new Fleet()) {
            List<String> names = named("item", 10);
            fill(fleet.seenFrom(Fleet.WRITER), names);
            fleet.waitLevel();
            for (String region : Fleet.REGIONS) {
                CosmosContainer container = fleet.seenFrom(region);
                fleet.answeredBy(region, "read_item", names.size(), Fleet.REGIONS,
                        () -> names.forEach(name -> read(container, keyOf(name), name)));
            }
        }
    }

    @Test
    @DisplayName("region-writes-in-write-region")
    void writesInWriteRegion() throws Exception {
        try (Fleet fleet = new Fleet()) {
            for (String region : Fleet.REGIONS) {
                CosmosContainer container = fleet.seenFrom(region);
                fleet.answeredBy(Fleet.WRITER, "create_item", 5, Fleet.REGIONS, () -> fill(container, named(region, 5)));
            }
        }
    }

    /** Lets a region lag and reads there what was just written. */
    private static void checkSession(Map<String, Object> lag, String answering) throws Exception {
        try (Fleet fleet = new Fleet()) {
            CosmosContainer container = fleet.seenFrom(Fleet.LAST);
            create(container, A, item("1", "a").put("n", 0));
            fleet.waitLevel();
            fleet.withLinks(lag, List.of(Fleet.LAST), () -> {
                for (int n = 1; n < 4; n++) {
                    container.replaceItem(item("1", "a").put("n", n), "1", A, new CosmosItemRequestOptions());
                    String expected = Integer.toString(n);
                    fleet.answeredBy(answering, "read_item", 1, Fleet.REGIONS,
                            () -> shows(read(container, A, "1"), "n", expected));
                }
            });
        }
    }

    @Test
    @DisplayName("region-session")
    void session() throws Exception {
        checkSession(Map.of("latencyMs", 100), Fleet.LAST);
    }

    @Test
    @DisplayName("region-session-cut-off")
    void sessionCutOff() throws Exception {
        checkSession(Map.of("paused", true), Fleet.WRITER);
    }

    @Test
    @DisplayName("region-down")
    void down() throws Exception {
        try (Fleet fleet = new Fleet()) {
            CosmosContainer container = fleet.seenFrom(Fleet.LAST);
            fill(container, List.of("1"));
            fleet.waitLevel();
            fleet.answeredBy(Fleet.LAST, "read_item", 1, Fleet.REGIONS, () -> read(container, keyOf("1"), "1"));
            fleet.manageRegion(Fleet.LAST, "stop", Map.of("mode", "unavailable"));
            try {
                fleet.answeredBy(Fleet.WRITER, "read_item", 5, List.of(Fleet.WRITER, Fleet.NEXT), () -> {
                    for (int i = 0; i < 5; i++) {
                        read(container, keyOf("1"), "1");
                    }
                });
            } finally {
                fleet.manageRegion(Fleet.LAST, "start", Map.of());
            }
        }
    }

    @Test
    @DisplayName("region-added-and-removed")
    void addedAndRemoved() throws Exception {
        try (Fleet fleet = new Fleet()) {
            fill(fleet.seenFrom(Fleet.WRITER), List.of("1"));
            fleet.manage("POST", "regions", Map.of("region", Fleet.ADDED));
            try {
                CosmosContainer container = fleet.seenFrom(Fleet.ADDED);
                Fleet.Work readFive = () -> {
                    for (int i = 0; i < 5; i++) {
                        read(container, keyOf("1"), "1");
                    }
                };
                fleet.answeredBy(Fleet.ADDED, "read_item", 0, Fleet.REGIONS, readFive);
                long before = fleet.answeredByAll("read_item");
                fleet.whileRemoved(Fleet.ADDED, readFive);
                readFive.run();
                // The SDK spreads what it tries again over the others.
                assertEquals(10, fleet.answeredByAll("read_item") - before);
            } finally {
                fleet.forget(Fleet.ADDED);
            }
        }
    }

    /** Creates items, and reads each back, until closed; notes what was acknowledged and what went wrong. */
    private static final class Load implements AutoCloseable {
        final ConcurrentLinkedQueue<String> acknowledged = new ConcurrentLinkedQueue<>();
        final ConcurrentLinkedQueue<String> errors = new ConcurrentLinkedQueue<>();
        private final List<Thread> workers = new ArrayList<>();
        private volatile boolean stopped;

        Load(CosmosContainer container) {
            for (int worker = 0; worker < 4; worker++) {
                String prefix = worker + "-";
                workers.add(new Thread(() -> {
                    for (int number = 0; !stopped; number++) {
                        write(container, prefix + number);
                    }
                }));
            }
            workers.forEach(Thread::start);
        }

        private void write(CosmosContainer container, String name) {
            try {
                fill(container, List.of(name));
                acknowledged.add(name);
                read(container, keyOf(name), name);
            } catch (CosmosException exception) {
                errors.add(name + ": " + exception.getStatusCode() + " " + exception.getShortMessage());
            }
        }

        @Override
        public void close() throws InterruptedException {
            stopped = true;
            for (Thread worker : workers) {
                worker.join();
            }
        }
    }

    @Test
    @DisplayName("region-planned-failover")
    void plannedFailover() throws Exception {
        try (Fleet fleet = new Fleet()) {
            Load load = new Load(fleet.seenFrom(Fleet.LAST));
            try (load) {
                eventually("load", () -> load.acknowledged.size() >= 40);
                for (String writer : List.of(Fleet.NEXT, Fleet.WRITER)) {
                    long before = fleet.answered("create_item", writer);
                    fleet.failOver(writer);
                    eventually("writing in " + writer, () -> fleet.answered("create_item", writer) >= before + 40);
                }
            }
            assertTrue(load.errors.isEmpty(), load.errors::toString);
            fleet.waitLevel();
            List<String> acknowledged = load.acknowledged.stream().sorted().toList();
            for (String region : Fleet.REGIONS) {
                assertEquals(acknowledged, fleet.idsSeenFrom(region), region);
            }
        }
    }

    @Test
    @DisplayName("region-forced-failover")
    void forcedFailover() throws Exception {
        try (Fleet fleet = new Fleet()) {
            List<String> kept = named("kept", 10);
            List<String> lost = named("lost", 10);
            List<String> later = named("later", 10);
            CosmosContainer container = fleet.seenFrom(Fleet.LAST);
            fill(container, kept);
            fleet.waitLevel();
            fleet.withLinks(Map.of("cut", true), List.of(Fleet.NEXT, Fleet.LAST), () -> {
                fill(container, lost);
                int reported = fleet.manageRegion(Fleet.WRITER, "offline", Map.of()).get("lostTransactions").asInt();
                assertEquals(lost.size(), reported);
            });
            for (String name : later) {
                eventually("writing elsewhere", () -> isWritten(container, name));
            }
            fleet.waitLevel();
            List<String> expected = Stream.concat(kept.stream(), later.stream()).sorted().toList();
            assertEquals(expected, fleet.idsSeenFrom(Fleet.NEXT));
            assertEquals(expected, fleet.idsSeenFrom(Fleet.LAST));
            fleet.manageRegion(Fleet.WRITER, "online", Map.of());
            fleet.failOver(Fleet.WRITER);
            assertEquals(expected, fleet.idsSeenFrom(Fleet.WRITER));
        }
    }

    @Test
    @DisplayName("region-conflict-feed")
    void conflictFeed() throws Exception {
        try (Fleet fleet = new Fleet()) {
            List<String> lost = named("lost", 3);
            CosmosContainer container = fleet.seenFrom(Fleet.NEXT);
            fleet.withLinks(Map.of("cut", true), List.of(Fleet.NEXT, Fleet.LAST), () -> {
                fill(container, lost);
                fleet.manageRegion(Fleet.WRITER, "offline", Map.of());
            });
            fleet.manageRegion(Fleet.WRITER, "online", Map.of());
            // The synchronous client has no conflicts.
            CosmosAsyncContainer feed = fleet.seenAsynchronouslyFrom(Fleet.NEXT);
            List<CosmosConflictProperties> conflicts = conflictsOf(feed);
            List<String> found = new ArrayList<>();
            for (CosmosConflictProperties conflict : conflicts) {
                assertEquals(OperationKind.CREATE, conflict.getOperationKind());
                JsonNode item = conflict.getItem(JsonNode.class);
                found.add(item.get("id").asText());
                PartitionKey key = new PartitionKey(item.get("pk").asText());
                CosmosConflictRequestOptions options = new CosmosConflictRequestOptions().setPartitionKey(key);
                feed.getConflict(conflict.getId()).delete(options).block();
            }
            assertEquals(lost, found.stream().sorted().toList());
            assertEquals(List.of(), fleet.idsSeenFrom(Fleet.NEXT));
            assertEquals(List.of(), conflictsOf(feed));
            fleet.failOver(Fleet.WRITER);
        }
    }

    private static List<CosmosConflictProperties> conflictsOf(CosmosAsyncContainer container) {
        return container.readAllConflicts(new CosmosQueryRequestOptions()).collectList().block();
    }

    /** Tries as an application would after a failover it was not spared. */
    private static boolean isWritten(CosmosContainer container, String name) {
        try {
            container.upsertItem(item(name, "key " + name));
            return true;
        } catch (CosmosException exception) {
            return false;
        }
    }
}
