package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class Partitions extends Scene {
    private static final int MERGED_ITEMS = 60;

    @Test
    @DisplayName("split-keeps-items")
    void keepsItems() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        for (int i = 0; i < 40; i++) {
            create(container, new PartitionKey("key-" + i), item("1", "key-" + i).put("n", i));
        }
        List<Integer> before = Admin.partitions(database, container);
        Admin.split(database, container, before.get(0));
        List<Integer> after = Admin.partitions(database, container);
        assertEquals(before.size() + 1, after.size());

        for (int i = 0; i < 40; i++) {
            PartitionKey key = new PartitionKey("key-" + i);
            shows(read(container, key, "1"), "n", Integer.toString(i));
            ObjectNode next = item("1", "key-" + i).put("n", -i);
            assertEquals(200, container.replaceItem(next, "1", key, new CosmosItemRequestOptions()).getStatusCode());
            create(container, key, item("2", "key-" + i));
            shows(read(container, key, "1"), "n", Integer.toString(-i));
        }
    }

    @Test
    @DisplayName("split-old-session-token")
    void oldSessionToken() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        String token = create(container, A, item("1", "a").put("n", 1)).getSessionToken();
        String partition = token.substring(0, token.indexOf(':'));
        Admin.split(database, container, Integer.parseInt(partition));

        CosmosItemRequestOptions after = new CosmosItemRequestOptions().setSessionToken(token);
        CosmosItemResponse<ObjectNode> read = container.readItem("1", A, after, ObjectNode.class);
        assertEquals(200, read.getStatusCode());
        shows(read.getItem(), "n", "1");
        assertFalse(read.getSessionToken().startsWith(partition + ":"), read::getSessionToken);
    }

    /** Writes items of many keys; gives the session token of each. */
    private static List<String> fill(CosmosContainer container, int n) {
        List<String> tokens = new ArrayList<>();
        for (int i = 0; i < MERGED_ITEMS; i++) {
            tokens.add(container.upsertItem(item(Integer.toString(i), "key " + i).put("n", n)).getSessionToken());
        }
        return tokens;
    }

    @Test
    @DisplayName("merge-under-paging")
    void mergeUnderPaging() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        List<String> beforeSplit = fill(container, 1);
        List<Integer> before = Admin.partitions(database, container);
        Admin.split(database, container, before.get(0));
        List<Integer> split = Admin.partitions(database, container);
        assertEquals(before.size() + 1, split.size());
        List<String> beforeMerge = fill(container, 2);

        List<String> found = new ArrayList<>();
        boolean merged = false;
        for (FeedResponse<String> page : container
                .queryItems("SELECT VALUE c.id FROM c", new CosmosQueryRequestOptions(), String.class)
                .iterableByPage(4)) {
            found.addAll(page.getResults());
            if (!merged) {
                Admin.merge(database, container, split.get(0), split.get(1));
                merged = true;
            }
        }
        assertEquals(before.size(), Admin.partitions(database, container).size());
        List<String> expected = IntStream.range(0, MERGED_ITEMS).mapToObj(Integer::toString).sorted().toList();
        assertEquals(expected, found.stream().sorted().toList());
        readWith(container, beforeSplit);
        readWith(container, beforeMerge);
    }

    /** Reads every item with the session token of an earlier write to it. */
    private static void readWith(CosmosContainer container, List<String> tokens) {
        for (int i = 0; i < MERGED_ITEMS; i++) {
            PartitionKey key = new PartitionKey("key " + i);
            CosmosItemRequestOptions options = new CosmosItemRequestOptions().setSessionToken(tokens.get(i));
            shows(container.readItem(Integer.toString(i), key, options, ObjectNode.class).getItem(), "n", "2");
            shows(read(container, key, Integer.toString(i)), "n", "2");
        }
    }
}
