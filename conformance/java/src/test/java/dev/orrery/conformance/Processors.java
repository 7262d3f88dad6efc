package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import reactor.core.scheduler.Schedulers;

/** The SDK's change feed processor, whose leases are items of a container like any other. */
class Processors extends Scene {
    /** What was delivered: the values of each key in order, and which host saw anything. */
    private static final class Ledger {
        final Map<String, List<Integer>> values = new ConcurrentHashMap<>();
        final Set<String> hosts = ConcurrentHashMap.newKeySet();

        void note(String host, JsonNode item) {
            hosts.add(host);
            List<Integer> of = values.computeIfAbsent(item.get("pk").asText(), key -> new ArrayList<>());
            synchronized (of) {
                of.add(item.get("n").asInt());
            }
        }

        boolean hasSeen(int keys, int n) {
            return values.size() == keys && values.values().stream().allMatch(of -> {
                synchronized (of) {
                    return of.contains(n);
                }
            });
        }
    }

    private static CosmosAsyncContainer async(CosmosDatabase database, CosmosContainer container) {
        return Server.ASYNC_CLIENT.getDatabase(database.getId()).getContainer(container.getId());
    }

    private static ChangeFeedProcessorOptions options() {
        return new ChangeFeedProcessorOptions()
                .setFeedPollDelay(Duration.ofMillis(100))
                .setLeaseAcquireInterval(Duration.ofMillis(700))
                .setLeaseRenewInterval(Duration.ofMillis(500))
                .setLeaseExpirationInterval(Duration.ofMillis(2500))
                .setMaxItemCount(10)
                .setStartFromBeginning(true)
                .setScheduler(Schedulers.boundedElastic());
    }

    private static ChangeFeedProcessor latest(
            String host, CosmosAsyncContainer feed, CosmosAsyncContainer leases, Ledger ledger) {
        Consumer<List<ChangeFeedProcessorItem>> handler =
                changes -> changes.forEach(change -> ledger.note(host, change.getCurrent()));
        return new ChangeFeedProcessorBuilder()
                .hostName(host)
                .feedContainer(feed)
                .leaseContainer(leases)
                .handleLatestVersionChanges(handler)
                .options(options())
                .buildChangeFeedProcessor();
    }

    private static void stop(ChangeFeedProcessor processor) {
        if (processor.isStarted()) {
            processor.stop().block();
        }
    }

    private static void fill(CosmosContainer container, int n) {
        for (int i = 0; i < 20; i++) {
            container.upsertItem(item("1", "key " + i).put("n", n));
        }
    }

    @Test
    @DisplayName("processor-latest-versions")
    void latestVersions() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        CosmosContainer leases = container(database, properties -> properties.getPartitionKeyDefinition()
                .setPaths(List.of("/id")));
        CosmosAsyncContainer feed = async(database, container);
        CosmosAsyncContainer store = async(database, leases);
        Ledger ledger = new Ledger();
        fill(container, 0);
        ChangeFeedProcessor one = latest("one", feed, store, ledger);
        ChangeFeedProcessor two = latest("two", feed, store, ledger);
        one.start().block();
        try {
            eventually("the first host sees what was there", () -> ledger.hasSeen(20, 0));
            two.start().block();
            int[] n = {0};
            eventually("both hosts work", () -> {
                fill(container, ++n[0]);
                return ledger.hosts.size() == 2;
            });
            one.stop().block();
            for (int partition : Admin.partitions(database, container)) {
                Admin.split(database, container, partition);
            }
            int last = n[0] + 1;
            fill(container, last);
            eventually("the host that is left sees the rest", () -> ledger.hasSeen(20, last));
        } finally {
            stop(two);
            stop(one);
        }
        ledger.values.forEach((key, of) -> {
            List<Integer> distinct = of.stream().distinct().toList();
            assertEquals(distinct.stream().sorted().toList(), distinct, key + " came out of order: " + of);
        });
    }

    @Test
    @DisplayName("processor-all-versions")
    void allVersions() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database, properties -> properties.setChangeFeedPolicy(
                ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10))));
        CosmosContainer leases = container(database, properties -> properties.getPartitionKeyDefinition()
                .setPaths(List.of("/id")));
        List<String> seen = new ArrayList<>();
        Consumer<List<ChangeFeedProcessorItem>> handler = changes -> {
            synchronized (seen) {
                changes.forEach(change -> seen.add(change.getChangeFeedMetaData().getOperationType().toString()));
            }
        };
        ChangeFeedProcessor processor = new ChangeFeedProcessorBuilder()
                .hostName("one")
                .feedContainer(async(database, container))
                .leaseContainer(async(database, leases))
                .handleAllVersionsAndDeletesChanges(handler)
                .options(options().setStartFromBeginning(false))
                .buildChangeFeedProcessor();
        processor.start().block();
        try {
            // A processor starts now, whenever it gets to it: writes until it notices, then the ones that count.
            eventually("the processor reads every range", () -> {
                for (int i = 0; i < 20; i++) {
                    container.upsertItem(item("probe", "key " + i));
                }
                synchronized (seen) {
                    return seen.size() >= 100;
                }
            });
            create(container, A, item("1", "a").put("n", 0));
            container.upsertItem(item("1", "a").put("n", 1));
            container.deleteItem("1", A, new CosmosItemRequestOptions());
            eventually("a delete arrives", () -> {
                synchronized (seen) {
                    return seen.contains("DELETE") || seen.contains("delete");
                }
            });
        } finally {
            processor.stop().block();
        }
        assertTrue(seen.stream().anyMatch(kind -> kind.equalsIgnoreCase("create")), seen::toString);
        assertTrue(seen.stream().anyMatch(kind -> kind.equalsIgnoreCase("replace")), seen::toString);
    }
}
