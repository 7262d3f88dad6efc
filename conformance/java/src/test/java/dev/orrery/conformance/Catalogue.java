package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosFullTextIndex;
import com.azure.cosmos.models.CosmosFullTextPath;
import com.azure.cosmos.models.CosmosFullTextPolicy;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.CosmosVectorDataType;
import com.azure.cosmos.models.CosmosVectorDistanceFunction;
import com.azure.cosmos.models.CosmosVectorEmbedding;
import com.azure.cosmos.models.CosmosVectorEmbeddingPolicy;
import com.azure.cosmos.models.CosmosVectorIndexSpec;
import com.azure.cosmos.models.ExcludedPath;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.IncludedPath;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.stream.IntStream;

/** The data of the query scenarios: 120 items of 40 keys in eight physical partitions. See ../README.md. */
final class Catalogue {
    static final int N_ITEMS = 120;
    private static final int N_PARTITIONS = 8;

    final List<ObjectNode> items = IntStream.range(0, N_ITEMS).mapToObj(Catalogue::makeItem).toList();
    private final CosmosDatabase database;
    private final CosmosContainer container;

    Catalogue(CosmosDatabase database) throws Exception {
        this.database = database;
        ThroughputProperties throughput = ThroughputProperties.createManualThroughput(10_000 * N_PARTITIONS);
        CosmosContainerProperties properties = properties(Scene.unique("items"));
        assertEquals(201, database.createContainer(properties, throughput).getStatusCode());
        container = database.getContainer(properties.getId());
        assertEquals(N_PARTITIONS, Admin.partitions(database, container).size());
        items.parallelStream().forEach(container::createItem);
    }

    private static CosmosContainerProperties properties(String id) {
        CompositePath tie = new CompositePath().setPath("/tie").setOrder(CompositePathSortOrder.ASCENDING);
        CompositePath n = new CompositePath().setPath("/n").setOrder(CompositePathSortOrder.DESCENDING);
        IndexingPolicy indexing = new IndexingPolicy()
                .setIncludedPaths(List.of(new IncludedPath("/*")))
                .setExcludedPaths(List.of(new ExcludedPath("/vector/*")))
                .setCompositeIndexes(List.of(List.of(tie, n)))
                .setVectorIndexes(List.of(new CosmosVectorIndexSpec().setPath("/vector").setType("flat")))
                .setCosmosFullTextIndexes(List.of(new CosmosFullTextIndex().setPath("/text")));
        CosmosVectorEmbeddingPolicy vectors = new CosmosVectorEmbeddingPolicy();
        vectors.setCosmosVectorEmbeddings(List.of(new CosmosVectorEmbedding()
                .setPath("/vector")
                .setDataType(CosmosVectorDataType.FLOAT32)
                .setEmbeddingDimensions(2)
                .setDistanceFunction(CosmosVectorDistanceFunction.EUCLIDEAN)));
        CosmosFullTextPolicy texts = new CosmosFullTextPolicy()
                .setDefaultLanguage("en-US")
                .setPaths(List.of(new CosmosFullTextPath().setPath("/text").setLanguage("en-US")));
        return new CosmosContainerProperties(id, "/pk")
                .setIndexingPolicy(indexing)
                .setVectorEmbeddingPolicy(vectors)
                .setFullTextPolicy(texts);
    }

    private static ObjectNode makeItem(int i) {
        int n = i * 37 % N_ITEMS;
        int rank = cometRank(i);
        ObjectNode item = Scene.item(Integer.toString(i), "key " + i % 40)
                .put("n", n)
                .put("tie", i % 4)
                .put("family", "family " + i % 5)
                .put("text", "comet ".repeat(rank) + "dust ".repeat(20 - rank));
        item.putArray("vector").add(rank > 0 ? 1000 + rank * 7 % 11 : n).add(1);
        switch (i % 5) {
            case 1 -> item.putNull("mixed");
            case 2 -> item.put("mixed", i % 4 == 2);
            case 3 -> item.put("mixed", n);
            case 4 -> item.put("mixed", "text %03d".formatted(n));
            default -> { }
        }
        return item;
    }

    /** Ten items speak of comets: the first once, the last ten times. */
    private static int cometRank(int i) {
        return i % 12 == 0 ? i / 12 + 1 : 0;
    }

    /** The rows that show those items. */
    static List<ObjectNode> ranked(int... ranks) {
        return IntStream.of(ranks).mapToObj(rank -> Scene.item("{'id':'" + (rank - 1) * 12 + "'}")).toList();
    }

    /** Splits every partition the container has now. */
    void split() {
        try {
            for (int partition : Admin.partitions(database, container)) {
                Admin.split(database, container, partition);
            }
        } catch (Exception exception) {
            throw new IllegalStateException("the partitions cannot be split", exception);
        }
    }

    Iterable<FeedResponse<ObjectNode>> pages(String query, String continuation, int pageSize) {
        return container
                .queryItems(query, new CosmosQueryRequestOptions(), ObjectNode.class)
                .iterableByPage(continuation, pageSize);
    }

    List<ObjectNode> rows(String query, int pageSize) {
        return rows(query, pageSize, () -> {});
    }

    private List<ObjectNode> rows(String query, int pageSize, Runnable afterFirst) {
        List<ObjectNode> rows = new ArrayList<>();
        boolean first = true;
        for (FeedResponse<ObjectNode> page : pages(query, null, pageSize)) {
            assertTrue(page.getResults().size() <= pageSize, "a page has more rows than asked for");
            rows.addAll(page.getResults());
            if (first) {
                afterFirst.run();
                first = false;
            }
        }
        return rows;
    }

    /** The numbers a query gives that selects values. */
    List<Double> values(String query) {
        return container.queryItems(query, new CosmosQueryRequestOptions(), Double.class).stream().toList();
    }

    /** Hands over the rows of a query before, during and after a split of all partitions. */
    void look(String query, int pageSize, Consumer<List<ObjectNode>> right) {
        right.accept(rows(query, pageSize));
        right.accept(rows(query, pageSize, this::split));
        right.accept(rows(query, pageSize));
    }

    /** Exactly these rows. */
    void expect(String query, int pageSize, List<ObjectNode> expected) {
        look(query, pageSize, rows -> assertEquals(expected, rows, query));
    }

    /** Exactly these rows, sorted or not. */
    void expectInAnyOrder(String query, int pageSize, List<ObjectNode> expected) {
        look(query, pageSize, rows -> assertEquals(byText(expected), byText(rows), query));
    }

    /** Rows as sorted texts; a number is the same whether the SDK made a double of it or not. */
    static List<String> byText(List<ObjectNode> rows) {
        return rows.stream().map(Catalogue::text).sorted().toList();
    }

    private static String text(ObjectNode row) {
        Map<String, Object> members = new TreeMap<>();
        row.fields().forEachRemaining(member -> {
            JsonNode value = member.getValue();
            members.put(member.getKey(), value.isNumber() ? (Object) value.asDouble() : value);
        });
        return members.toString();
    }
}
