package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What the change feed keeps to when transactions, expiry, keys of levels and changing partitions come into it. */
class FeedPromises extends Scene {
    private static void keepVersions(CosmosContainerProperties properties) {
        properties.setChangeFeedPolicy(ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10)));
    }

    private static CosmosChangeFeedRequestOptions allFromNow() {
        return CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()).allVersionsAndDeletes();
    }

    private static ChangeFeeds.Read resumeAll(CosmosContainer container, String continuation) {
        return ChangeFeeds.read(container, CosmosChangeFeedRequestOptions
                .createForProcessingFromContinuation(continuation).allVersionsAndDeletes());
    }

    @Test
    @DisplayName("feed-batch-uncut")
    void batchUncut() {
        CosmosContainer container = container();
        CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
        IntStream.range(0, 50).forEach(n -> batch.createItemOperation(item("b" + n, "a").put("n", n)));
        assertEquals(200, container.executeCosmosBatch(batch).getStatusCode());
        CosmosBatch failing = CosmosBatch.createCosmosBatch(A);
        failing.createItemOperation(item("new", "a"));
        failing.createItemOperation(item("b0", "a"));
        assertFalse(container.executeCosmosBatch(failing).isSuccessStatusCode());
        List<List<ObjectNode>> pages = new ArrayList<>();
        CosmosChangeFeedRequestOptions options = CosmosChangeFeedRequestOptions
                .createForProcessingFromBeginning(FeedRange.forFullRange()).setMaxItemCount(10);
        for (FeedResponse<ObjectNode> page : container.queryChangeFeed(options, ObjectNode.class).iterableByPage()) {
            if (!page.getResults().isEmpty()) {
                pages.add(page.getResults());
            }
        }
        assertEquals(1, pages.size());
        List<Integer> order = pages.get(0).stream().map(change -> change.get("n").asInt()).toList();
        assertEquals(IntStream.range(0, 50).boxed().toList(), order);
        assertEquals(1, pages.get(0).stream().map(change -> change.get("_lsn")).distinct().count());
    }

    @Test
    @DisplayName("feed-all-versions-expiry")
    void expiry() throws Exception {
        CosmosContainer container = container(properties -> {
            keepVersions(properties);
            properties.setDefaultTimeToLiveInSeconds(-1);
        });
        String[] continuation = {ChangeFeeds.read(container, allFromNow()).continuation()};
        create(container, A, item("1", "a").put("ttl", 1));
        List<ObjectNode> changes = new ArrayList<>();
        eventually("the item is purged", () -> {
            ChangeFeeds.Read next = resumeAll(container, continuation[0]);
            changes.addAll(next.changes());
            continuation[0] = next.continuation();
            return changes.size() == 2;
        });
        assertEquals("create", changes.get(0).at("/metadata/operationType").asText());
        assertFalse(changes.get(0).at("/metadata/timeToLiveExpired").asBoolean());
        ObjectNode gone = changes.get(1);
        assertEquals("delete", gone.at("/metadata/operationType").asText());
        assertTrue(gone.at("/metadata/timeToLiveExpired").asBoolean(), gone::toString);
        assertEquals("1", gone.at("/metadata/id").asText());
        assertEquals(List.of(), ChangeFeeds.beginning(container).changes());
    }

    @Test
    @DisplayName("feed-hierarchical-key")
    void hierarchicalKey() {
        CosmosContainer container = container(properties -> {
            Containers.hierarchical(properties);
            keepVersions(properties);
        });
        String continuation = ChangeFeeds.read(container, allFromNow()).continuation();
        for (int n = 0; n < 20; n++) {
            ObjectNode item = item("{'id':'1'}").put("tenant", "t" + n).put("user", n % 3).put("session", true).put("n", n);
            create(container, key(n), item);
        }
        container.deleteItem("1", key(7), new CosmosItemRequestOptions());
        List<ObjectNode> gone = resumeAll(container, continuation).changes().stream()
                .filter(change -> change.at("/metadata/operationType").asText().equals("delete"))
                .toList();
        assertEquals(1, gone.size());
        assertEquals(item("{'tenant':'t7','user':1,'session':true}"), gone.get(0).at("/metadata/partitionKey"));
        List<Integer> found = new ArrayList<>();
        for (FeedRange range : container.getFeedRanges()) {
            ChangeFeeds.read(container, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range))
                    .changes().forEach(change -> found.add(change.get("n").asInt()));
        }
        assertEquals(IntStream.range(0, 20).filter(n -> n != 7).boxed().toList(), found.stream().sorted().toList());
        List<ObjectNode> own = ChangeFeeds.read(container, CosmosChangeFeedRequestOptions
                .createForProcessingFromBeginning(FeedRange.forLogicalPartition(key(5)))).changes();
        assertEquals(List.of(5), own.stream().map(change -> change.get("n").asInt()).toList());
    }

    private static PartitionKey key(int n) {
        return new PartitionKeyBuilder().add("t" + n).add(n % 3).add(true).build();
    }

    private interface Reshaping {
        void apply(CosmosDatabase database, CosmosContainer container) throws Exception;
    }

    /** A continuation from before the partitions change goes on after it. */
    private void goesOn(Reshaping reshaping) throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        ChangeFeeds.fill(container, 0, 30, 1);
        ChangeFeeds.Read first = ChangeFeeds.beginning(container);
        assertEquals(30, first.changes().size());
        ChangeFeeds.fill(container, 0, 10, 2);
        reshaping.apply(database, container);
        ChangeFeeds.fill(container, 20, 30, 2);
        ChangeFeeds.Read next = ChangeFeeds.resume(container, first.continuation());
        List<String> expected = Stream.concat(
                        ChangeFeeds.wanted(0, 10, 2).stream(), ChangeFeeds.wanted(20, 30, 2).stream())
                .sorted()
                .toList();
        assertEquals(expected, next.seen());
        ChangeFeeds.fill(container, 0, 30, 3);
        assertEquals(ChangeFeeds.wanted(0, 30, 3), ChangeFeeds.resume(container, next.continuation()).seen());
    }

    private static void mergeAt(CosmosDatabase database, CosmosContainer container, int index) throws Exception {
        List<Integer> partitions = Admin.partitions(database, container);
        Admin.merge(database, container, partitions.get(index), partitions.get(index + 1));
    }

    @Test
    @DisplayName("feed-after-merge")
    void afterMerge() throws Exception {
        goesOn((database, container) -> mergeAt(database, container, 1));
    }

    @Test
    @DisplayName("feed-after-merge-and-split")
    void afterMergeAndSplit() throws Exception {
        // Three of four quarters become one, whose middle was no bound before.
        goesOn((database, container) -> {
            mergeAt(database, container, 0);
            mergeAt(database, container, 0);
            Admin.split(database, container, Admin.partitions(database, container).get(0));
        });
    }
}
