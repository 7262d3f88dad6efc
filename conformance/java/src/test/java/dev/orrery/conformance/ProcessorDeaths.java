package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

/** Processor hosts in processes of their own, one of which is killed. */
@Isolated("leases expire when their hosts get no processor time")
class ProcessorDeaths extends Scene {
    private static final int KEYS = 20;

    /** What every host together was given. */
    private static final class Ledger {
        /** Per key, the values in the order in which they first came. */
        final Map<String, Set<Integer>> values = new ConcurrentHashMap<>();
        final Set<String> deletes = ConcurrentHashMap.newKeySet();
        final Set<String> hosts = ConcurrentHashMap.newKeySet();

        void note(String host, String line) {
            String[] fields = line.split("\t");
            if (fields.length != 5 || !fields[0].equals("change")) {
                return;
            }
            hosts.add(host);
            if (fields[3].equals("-")) {
                deletes.add(fields[1] + " " + fields[2]);
                return;
            }
            Set<Integer> of = values.computeIfAbsent(fields[3], key -> new LinkedHashSet<>());
            synchronized (of) {
                of.add(Integer.parseInt(fields[4]));
            }
        }

        boolean hasSeen(int n) {
            return values.size() == KEYS && values.values().stream().allMatch(of -> {
                synchronized (of) {
                    return of.contains(n);
                }
            });
        }
    }

    /** The containers of a unit, and which versions it reads. */
    private record Unit(CosmosDatabase database, CosmosContainer feed, CosmosContainer leases, String versions) {}

    private static Process host(String name, Unit unit, Ledger ledger) throws IOException {
        String path = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        Process process = new ProcessBuilder(
                        java,
                        "-DCOSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED=true",
                        "-cp",
                        path,
                        ProcessorHost.class.getName(),
                        unit.database().getId(),
                        unit.feed().getId(),
                        unit.leases().getId(),
                        name,
                        unit.versions())
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start();
        Thread reader = new Thread(() -> {
            try (BufferedReader lines = process.inputReader()) {
                lines.lines().forEach(line -> ledger.note(name, line));
            } catch (IOException | java.io.UncheckedIOException exception) {
                // The process was killed; what it printed before counts.
            }
        });
        reader.setDaemon(true);
        reader.start();
        return process;
    }

    private static void fill(CosmosContainer container, int n) {
        for (int i = 0; i < KEYS; i++) {
            container.upsertItem(item("1", "key " + i).put("n", n));
        }
    }

    private static List<String> owners(CosmosContainer leases) {
        String text = "SELECT * FROM c WHERE IS_DEFINED(c.LeaseToken)";
        List<String> owners = new ArrayList<>();
        leases.queryItems(text, new CosmosQueryRequestOptions(), com.fasterxml.jackson.databind.JsonNode.class)
                .forEach(lease -> owners.add(
                        lease.path("ContinuationToken").isTextual() ? lease.path("Owner").asText("") : ""));
        return owners;
    }

    @Test
    @DisplayName("processor-all-versions-killed")
    void hostKilled() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database, properties -> properties.setChangeFeedPolicy(
                ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10))));
        CosmosContainer leases = container(database, properties -> properties.getPartitionKeyDefinition()
                .setPaths(List.of("/id")));
        Ledger ledger = new Ledger();
        Unit unit = new Unit(database, container, leases, "all");
        Process victim = host("victim", unit, ledger);
        Process other = host("other", unit, ledger);
        try {
            // A processor starts now, whenever it gets to it: writes until every range is read and its position saved.
            int[] n = {0};
            eventually("every lease has a position", () -> {
                fill(container, ++n[0]);
                return ledger.values.size() == KEYS && !owners(leases).contains("");
            });
            // The SDK takes a lease only if nobody has written it since it looked, so there is quiet until both have some.
            eventually("both hosts have leases", () ->
                    new HashSet<>(owners(leases)).equals(Set.of("victim", "other")));
            int first = n[0] + 1;
            fill(container, first);
            victim.destroyForcibly().waitFor();
            fill(container, first + 1);
            for (int partition : Admin.partitions(database, container)) {
                Admin.split(database, container, partition);
            }
            fill(container, first + 2);
            for (int i = 0; i < KEYS; i++) {
                container.deleteItem("1", new PartitionKey("key " + i), new CosmosItemRequestOptions());
            }
            eventually("the host that is left sees every version and every delete", () ->
                    IntStream.range(first, first + 3).allMatch(ledger::hasSeen) && ledger.deletes.size() >= KEYS);
        } finally {
            victim.destroyForcibly();
            other.destroyForcibly();
        }
        assertOrder(ledger);
    }

    private static void assertOrder(Ledger ledger) {
        ledger.values.forEach((key, of) -> {
            List<Integer> seen = List.copyOf(of);
            assertEquals(seen.stream().sorted().toList(), seen, key + " came out of order");
        });
    }

    /** How many leases each host has. */
    private static Map<String, Long> shares(CosmosContainer leases) {
        return owners(leases).stream().collect(Collectors.groupingBy(owner -> owner, Collectors.counting()));
    }

    @Test
    @DisplayName("processor-latest-versions-killed")
    void hostOfLatestVersionsKilled() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        CosmosContainer leases = container(database, properties -> properties.getPartitionKeyDefinition()
                .setPaths(List.of("/id")));
        Ledger ledger = new Ledger();
        fill(container, 0);
        Unit unit = new Unit(database, container, leases, "latest");
        Process victim = host("victim", unit, ledger);
        Process other = host("other", unit, ledger);
        try {
            eventually("what was there is seen", () -> ledger.hasSeen(0));
            eventually("each host has two of the four leases", () ->
                    shares(leases).equals(Map.of("victim", 2L, "other", 2L)));
            ledger.hosts.clear();
            fill(container, 1);
            eventually("both hosts see what is in their leases", () ->
                    ledger.hasSeen(1) && ledger.hosts.equals(Set.of("victim", "other")));
            fill(container, 2);
            victim.destroyForcibly().waitFor();
            for (int partition : Admin.partitions(database, container)) {
                Admin.split(database, container, partition);
            }
            fill(container, 3);
            eventually("the host that is left sees the last state of every key", () -> ledger.hasSeen(3));
            eventually("and has a lease for every partition", () ->
                    shares(leases).equals(Map.of("other", 8L)));
        } finally {
            victim.destroyForcibly();
            other.destroyForcibly();
        }
        assertOrder(ledger);
    }
}
