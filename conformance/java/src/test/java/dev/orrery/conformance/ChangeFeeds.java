package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** The change feed, pulled: the SDK's pages end when every range has said that there is nothing new. */
class ChangeFeeds extends Scene {
    /** What a read saw, and where to go on. */
    record Read(List<ObjectNode> changes, String continuation) {
        List<String> seen() {
            return changes.stream().map(change -> change.get("id").asText() + ":" + change.get("n")).sorted().toList();
        }
    }

    static Read read(CosmosContainer container, CosmosChangeFeedRequestOptions options) {
        List<ObjectNode> changes = new ArrayList<>();
        String continuation = null;
        for (FeedResponse<ObjectNode> page : container.queryChangeFeed(options, ObjectNode.class).iterableByPage()) {
            changes.addAll(page.getResults());
            continuation = page.getContinuationToken();
        }
        return new Read(changes, continuation);
    }

    static Read beginning(CosmosContainer container) {
        return read(container, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forFullRange()));
    }

    static Read resume(CosmosContainer container, String continuation) {
        return read(container, CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(continuation));
    }

    static void fill(CosmosContainer container, int from, int to, int n) {
        for (int i = from; i < to; i++) {
            container.upsertItem(item(Integer.toString(i), "key " + i).put("n", n));
        }
    }

    static List<String> wanted(int from, int to, int n) {
        return IntStream.range(from, to).mapToObj(i -> i + ":" + n).sorted().toList();
    }

    @Test
    @DisplayName("feed-latest-versions")
    void latestVersions() {
        CosmosContainer container = container();
        fill(container, 0, 30, 1);
        fill(container, 0, 10, 2);
        container.deleteItem("29", new PartitionKey("key 29"), new CosmosItemRequestOptions());
        Read read = read(container, CosmosChangeFeedRequestOptions
                .createForProcessingFromBeginning(FeedRange.forFullRange()).setMaxItemCount(4));
        List<String> expected = Stream.concat(wanted(0, 10, 2).stream(), wanted(10, 29, 1).stream()).sorted().toList();
        assertEquals(expected, read.seen());
        assertTrue(read.changes().stream().allMatch(change -> change.get("_lsn").asLong() > 0));
    }

    @Test
    @DisplayName("feed-resume")
    void resume() {
        CosmosContainer container = container();
        fill(container, 0, 20, 1);
        Read first = beginning(container);
        assertEquals(wanted(0, 20, 1), first.seen());
        fill(container, 15, 25, 2);
        Read next = resume(container, first.continuation());
        assertEquals(wanted(15, 25, 2), next.seen());
        assertEquals(List.of(), resume(container, next.continuation()).seen());
    }

    @Test
    @DisplayName("feed-from-now")
    void fromNow() {
        CosmosContainer container = container();
        fill(container, 0, 10, 1);
        Read first = read(container, CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()));
        assertEquals(List.of(), first.seen());
        fill(container, 0, 5, 2);
        assertEquals(wanted(0, 5, 2), resume(container, first.continuation()).seen());
    }

    @Test
    @DisplayName("feed-from-time")
    void fromTime() throws Exception {
        CosmosContainer container = container();
        fill(container, 0, 5, 1);
        long last = read(container, new PartitionKey("key 4"), "4").get("_ts").asLong();
        eventually("a later second", () -> {
            fill(container, 9, 10, 2);
            return read(container, new PartitionKey("key 9"), "9").get("_ts").asLong() > last;
        });
        Read read = read(container, CosmosChangeFeedRequestOptions.createForProcessingFromPointInTime(
                Instant.ofEpochSecond(last), FeedRange.forFullRange()));
        assertEquals(wanted(9, 10, 2), read.seen());
    }

    @Test
    @DisplayName("feed-logical-key")
    void logicalKey() {
        CosmosContainer container = container();
        for (int n = 0; n < 6; n++) {
            create(container, A, item(Integer.toString(n), "a").put("n", n));
            create(container, B, item(Integer.toString(n), "b").put("n", n));
        }
        Read read = read(container, CosmosChangeFeedRequestOptions
                .createForProcessingFromBeginning(FeedRange.forLogicalPartition(A)).setMaxItemCount(2));
        assertEquals(6, read.changes().size());
        for (int n = 0; n < 6; n++) {
            shows(read.changes().get(n), "pk", "'a'");
            shows(read.changes().get(n), "n", Integer.toString(n));
        }
    }

    @Test
    @DisplayName("feed-ranges-cover-everything")
    void rangesCoverEverything() {
        CosmosContainer container = container();
        fill(container, 0, 30, 1);
        List<FeedRange> ranges = container.getFeedRanges();
        assertEquals(4, ranges.size());
        List<ObjectNode> changes = new ArrayList<>();
        for (FeedRange range : ranges) {
            changes.addAll(
                    read(container, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range)).changes());
        }
        assertEquals(wanted(0, 30, 1), new Read(changes, null).seen());
    }

    @Test
    @DisplayName("feed-after-split")
    void afterSplit() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        fill(container, 0, 30, 1);
        Read first = beginning(container);
        assertEquals(wanted(0, 30, 1), first.seen());
        for (int partition : Admin.partitions(database, container)) {
            Admin.split(database, container, partition);
        }
        fill(container, 10, 20, 2);
        Read next = resume(container, first.continuation());
        assertEquals(wanted(10, 20, 2), next.seen());
        fill(container, 0, 3, 3);
        assertEquals(wanted(0, 3, 3), resume(container, next.continuation()).seen());
    }

    @Test
    @DisplayName("feed-all-versions")
    void allVersions() {
        CosmosContainer container = container(properties -> properties.setChangeFeedPolicy(
                ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10))));
        Read first = read(container, CosmosChangeFeedRequestOptions
                .createForProcessingFromNow(FeedRange.forFullRange()).allVersionsAndDeletes());
        assertEquals(List.of(), first.changes());
        for (int n = 0; n < 3; n++) {
            container.upsertItem(item("1", "a").put("n", n));
        }
        container.deleteItem("1", A, new CosmosItemRequestOptions());
        List<ObjectNode> changes = read(container, CosmosChangeFeedRequestOptions
                .createForProcessingFromContinuation(first.continuation()).allVersionsAndDeletes()).changes();
        assertEquals(
                List.of("create", "replace", "replace", "delete"),
                changes.stream().map(change -> change.at("/metadata/operationType").asText()).toList());
        ObjectNode gone = changes.get(3);
        assertTrue(gone.get("current").isEmpty(), gone::toString);
        assertEquals("1", gone.at("/previous/id").asText());
        assertEquals("1", gone.at("/metadata/id").asText());
        assertEquals(changes.get(2).at("/metadata/lsn"), gone.at("/metadata/previousImageLSN"));
    }
}
