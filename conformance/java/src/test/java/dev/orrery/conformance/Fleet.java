package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** The account of three regions with a new container in it: its clients, its administration, and who answered what. */
final class Fleet implements AutoCloseable {
    static final String WRITER = "West US";
    static final String NEXT = "North Europe";
    static final String LAST = "Southeast Asia";
    static final List<String> REGIONS = List.of(WRITER, NEXT, LAST);

    /** Not one of them, for those who add one. */
    static final String ADDED = "Japan East";

    private static final String ENDPOINT = System.getenv("ORRERY_REGIONS_ENDPOINT");
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final ObjectMapper JSON = new ObjectMapper();

    private final List<CosmosClient> clients = new ArrayList<>();
    private final List<CosmosAsyncClient> asyncClients = new ArrayList<>();
    private final Map<String, String> endpoints;
    private final CosmosDatabase database;

    /** Something that may fail in any way. */
    interface Work {
        void run() throws Exception;
    }

    Fleet() throws Exception {
        endpoints = JSON.readValue(System.getenv("ORRERY_REGIONS"), new TypeReference<>() {});
        CosmosClient client = preferring(REGIONS);
        String id = Scene.unique("db");
        assertEquals(201, client.createDatabase(id).getStatusCode());
        database = client.getDatabase(id);
        database.createContainer(new CosmosContainerProperties("items", "/pk"));
        waitLevel();
    }

    @Override
    public void close() {
        database.delete();
        clients.forEach(CosmosClient::close);
        asyncClients.forEach(CosmosAsyncClient::close);
    }

    private static CosmosClientBuilder builder(List<String> regions) {
        return Server.builder()
                .endpoint(ENDPOINT)
                .key(Server.KEY)
                .consistencyLevel(ConsistencyLevel.SESSION)
                .preferredRegions(regions);
    }

    private CosmosClient preferring(List<String> regions) {
        CosmosClient client = builder(regions).buildClient();
        clients.add(client);
        return client;
    }

    /** This region, then the others in their order. */
    private static List<String> firstOf(String region) {
        Stream<String> others = REGIONS.stream().filter(other -> !other.equals(region));
        return Stream.concat(Stream.of(region), others).toList();
    }

    /** The container as a new client sees it that prefers this region, then the others in their order. */
    CosmosContainer seenFrom(String region) {
        return preferring(firstOf(region)).getDatabase(database.getId()).getContainer("items");
    }

    CosmosAsyncContainer seenAsynchronouslyFrom(String region) {
        CosmosAsyncClient client = builder(firstOf(region)).buildAsyncClient();
        asyncClients.add(client);
        return client.getDatabase(database.getId()).getContainer("items");
    }

    JsonNode manage(String verb, String path, Object form) throws Exception {
        return manage(verb, path, "", form);
    }

    private JsonNode manage(String verb, String path, String query, Object form) throws Exception {
        String encoded = "_orrery/v1/" + path.replace(" ", "%20");
        return Admin.send(ENDPOINT, verb, encoded, query, JSON.writeValueAsString(form));
    }

    JsonNode manageRegion(String region, String action, Object form) throws Exception {
        return manage("POST", "regions/" + region + "/" + action, form);
    }

    void failOver(String region) throws Exception {
        manage("POST", "failover", Map.of("region", region));
    }

    /** Removes a region unless it is gone already. */
    void forget(String region) throws Exception {
        for (JsonNode known : manage("GET", "regions", Map.of()).get("regions")) {
            if (known.get("name").asText().equals(region)) {
                manage("DELETE", "regions/" + region, Map.of());
            }
        }
    }

    /** Removes a region, and works while it tells its clients to go elsewhere. */
    void whileRemoved(String region, Work work) throws Exception {
        CompletableFuture<?> removal = CompletableFuture.supplyAsync(
                () -> quietly(() -> manage("DELETE", "regions/" + region, "?drainMs=2000", Map.of())));
        Scene.eventually("draining", () -> {
            for (JsonNode known : quietly(() -> manage("GET", "regions", Map.of())).get("regions")) {
                if (known.get("name").asText().equals(region)) {
                    return known.get("state").asText().equals("draining");
                }
            }
            return false;
        });
        work.run();
        removal.get();
    }

    /** Until every region that is online has everything. */
    void waitLevel() throws Exception {
        Scene.eventually("replication", () -> {
            long lag = 0;
            for (JsonNode region : quietly(() -> manage("GET", "regions", Map.of())).get("regions")) {
                lag += region.get("lagTransactionsTotal").asLong();
            }
            return lag == 0;
        });
    }

    /** Lets the way from the write region to others behave like this for a while. */
    void withLinks(Map<String, Object> settings, List<String> others, Work work) throws Exception {
        setLinks(settings, others);
        try {
            work.run();
        } finally {
            setLinks(Map.of(), others);
        }
    }

    private void setLinks(Map<String, Object> settings, List<String> others) throws Exception {
        for (String to : others) {
            Map<String, Object> link = new LinkedHashMap<>(settings);
            link.put("from", WRITER);
            link.put("to", to);
            manage("PUT", "links", link);
        }
    }

    /** How many requests a region has answered with success, by its own count. */
    long answered(String operation, String region) {
        URI metrics = URI.create(endpoints.get(region) + "metrics");
        String text = quietly(() -> HTTP.send(HttpRequest.newBuilder(metrics).build(), BodyHandlers.ofString())).body();
        Pattern pattern = Pattern.compile(
                "orrery_requests_total\\{operation=\"" + operation + "\",status=\"2\\d\\d\"} (\\d+)");
        Matcher matcher = pattern.matcher(text);
        long total = 0;
        while (matcher.find()) {
            total += Long.parseLong(matcher.group(1));
        }
        return total;
    }

    /** The same of all regions that are always there. */
    long answeredByAll(String operation) {
        return REGIONS.stream().mapToLong(region -> answered(operation, region)).sum();
    }

    /** One of these regions answers all the work, so many times, and the others nothing. */
    void answeredBy(String region, String operation, int count, List<String> among, Work work) throws Exception {
        Map<String, Long> before = new LinkedHashMap<>();
        among.forEach(other -> before.put(other, answered(operation, other)));
        work.run();
        for (String other : among) {
            long expected = other.equals(region) ? count : 0;
            assertEquals(expected, answered(operation, other) - before.get(other), other + " answers");
        }
    }

    /** The ids of all items as a region has them, sorted. */
    List<String> idsSeenFrom(String region) {
        return seenFrom(region)
                .queryItems("SELECT VALUE c.id FROM c", new CosmosQueryRequestOptions(), String.class)
                .stream()
                .sorted()
                .toList();
    }

    private interface Answer<T> {
        T get() throws Exception;
    }

    private static <T> T quietly(Answer<T> answer) {
        try {
            return answer.get();
        } catch (Exception exception) {
            throw new IllegalStateException(exception);
        }
    }
}
