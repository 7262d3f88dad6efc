package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class Items extends Scene {
    @Test
    @DisplayName("item-create-and-read")
    void createAndRead() {
        CosmosContainer container = container();
        ObjectNode created = create(container, A, item("{'id':'1','pk':'a','name':'Ada','n':1.5}")).getItem();
        CosmosItemResponse<ObjectNode> read = container.readItem("1", A, ObjectNode.class);
        assertEquals(200, read.getStatusCode());
        ObjectNode item = read.getItem();
        assertEquals(created, item);
        shows(item, "name", "'Ada'");
        shows(item, "n", "1.5");
        shows(item, "_attachments", "'attachments/'");
        assertEquals(read.getETag(), item.get("_etag").asText());
        String rid = item.get("_rid").asText();
        assertEquals(24, rid.length(), "a _rid of 16 bytes");
        assertTrue(item.get("_self").asText().endsWith("/docs/" + rid + "/"), () -> item.get("_self").asText());
        assertTrue(item.get("_ts").isIntegralNumber());
        assertFalse(read.getActivityId().isEmpty());
    }

    @Test
    @DisplayName("item-create-twice-is-409")
    void createTwice() {
        CosmosContainer container = container();
        create(container, A, item("{'id':'1','pk':'a','n':1}"));
        refused(409, () -> container.createItem(item("{'id':'1','pk':'a','n':2}"), A, null));
        shows(read(container, A, "1"), "n", "1");
    }

    @Test
    @DisplayName("item-same-id-in-two-partitions")
    void sameIdInTwoPartitions() {
        CosmosContainer container = container();
        create(container, A, item("{'id':'1','pk':'a','n':1}"));
        create(container, B, item("{'id':'1','pk':'b','n':2}"));
        shows(read(container, A, "1"), "n", "1");
        shows(read(container, B, "1"), "n", "2");
    }

    @Test
    @DisplayName("item-missing-is-404")
    void missing() {
        CosmosContainer container = container();
        create(container, A, item("1", "a"));
        gone(container, A, "2");
        gone(container, B, "1");
    }

    @Test
    @DisplayName("item-in-missing-container-is-404")
    void inMissingContainer() {
        CosmosContainer container = database().getContainer("missing");
        gone(container, A, "1");
        refused(404, () -> container.createItem(item("1", "a"), A, null));
    }

    @Test
    @DisplayName("item-replace")
    void replace() {
        CosmosContainer container = container();
        CosmosItemResponse<ObjectNode> created = create(container, A, item("{'id':'1','pk':'a','n':1,'old':true}"));
        CosmosItemResponse<ObjectNode> replaced =
                container.replaceItem(item("{'id':'1','pk':'a','n':2}"), "1", A, new CosmosItemRequestOptions());
        assertEquals(200, replaced.getStatusCode());
        assertNotEquals(created.getETag(), replaced.getETag());
        ObjectNode item = read(container, A, "1");
        shows(item, "n", "2");
        assertFalse(item.has("old"));
        assertEquals(created.getItem().get("_rid"), item.get("_rid"));
        assertEquals(replaced.getETag(), item.get("_etag").asText());
    }

    @Test
    @DisplayName("item-replace-missing-is-404")
    void replaceMissing() {
        CosmosContainer container = container();
        refused(404, () -> container.replaceItem(item("1", "a"), "1", A, null));
    }

    @Test
    @DisplayName("item-upsert-creates-then-replaces")
    void upsert() {
        CosmosContainer container = container();
        CosmosItemResponse<ObjectNode> created = container.upsertItem(item("{'id':'1','pk':'a','n':1}"), A, null);
        assertEquals(201, created.getStatusCode());
        CosmosItemResponse<ObjectNode> replaced = container.upsertItem(item("{'id':'1','pk':'a','n':2}"), A, null);
        assertEquals(200, replaced.getStatusCode());
        assertNotEquals(created.getETag(), replaced.getETag());
        shows(read(container, A, "1"), "n", "2");
    }

    @Test
    @DisplayName("item-delete")
    void delete() {
        CosmosContainer container = container();
        create(container, A, item("1", "a"));
        assertEquals(204, container.deleteItem("1", A, new CosmosItemRequestOptions()).getStatusCode());
        gone(container, A, "1");
        refused(404, () -> container.deleteItem("1", A, new CosmosItemRequestOptions()));
    }

    @Test
    @DisplayName("item-id-special-characters")
    void idSpecialCharacters() {
        CosmosContainer container = container();
        List<String> ids = List.of(
                "with blank", "\"double\" 'single'", "100%", "%20", "a+b", "naïve-名前-🦀", "a&b=c;d", "[x]{y}|z");
        for (String id : ids) {
            PartitionKey key = new PartitionKey(id);
            create(container, key, item(id, id));
            assertEquals(id, read(container, key, id).get("id").asText());
            ObjectNode next = item(id, id).put("n", 2);
            assertEquals(200, container.replaceItem(next, id, key, new CosmosItemRequestOptions()).getStatusCode());
            assertEquals(204, container.deleteItem(id, key, new CosmosItemRequestOptions()).getStatusCode());
        }
    }

    @Test
    @DisplayName("item-id-reserved-characters")
    void idReservedCharacters() {
        CosmosContainer container = container();
        List<String> ids = List.of("a#b", "a/b", "a?b", "a\\b");
        for (String id : ids) {
            create(container, A, item(id, "a"));
        }
        // The SDK does not put a slash into a path.
        String sorted = "SELECT VALUE c.id FROM c ORDER BY c.id";
        assertEquals(
                ids,
                container
                        .queryItems(sorted, new CosmosQueryRequestOptions().setPartitionKey(A), String.class)
                        .stream()
                        .toList());
        assertEquals("a?b", read(container, A, "a?b").get("id").asText());
    }

    @Test
    @DisplayName("item-without-id-is-400")
    void withoutId() {
        CosmosContainer container = container();
        refused(400, () -> container.createItem(item("{'pk':'a'}"), A, null));
        refused(400, () -> container.upsertItem(item("{'pk':'a'}"), A, null));
    }

    @Test
    @DisplayName("item-64-bit-integers")
    void integersOf64Bits() {
        CosmosContainer container = container();
        String text = "{'id':'1','pk':'a','max':9223372036854775807,'min':-9223372036854775808,'odd':9007199254740993}";
        create(container, A, item(text));
        ObjectNode item = read(container, A, "1");
        shows(item, "max", "9223372036854775807");
        shows(item, "min", "-9223372036854775808");
        shows(item, "odd", "9007199254740993");
    }

    @Test
    @DisplayName("item-unicode-and-nesting")
    void unicodeAndNesting() {
        CosmosContainer container = container();
        ObjectNode sent =
                item("{'id':'1','pk':'ключ','nested':[[],{},null,true,[['deep',{'inner':['x',null,false]}]]]}");
        sent.put("text", "Grüße, 世界, שלום, 🦀👩‍🚀");
        sent.put("escapes", "line\nbreak\ttab \\ \" \u0001 \u2028");
        sent.put("naïve 🦀", "é");
        PartitionKey key = new PartitionKey("ключ");
        create(container, key, sent);
        ObjectNode read = read(container, key, "1");
        sent.fields().forEachRemaining(field -> assertEquals(field.getValue(), read.get(field.getKey())));
    }

    @Test
    @DisplayName("item-large")
    void large() {
        CosmosContainer container = container();
        String text = "0123456789abcdef".repeat(1_500_000 / 16);
        create(container, A, item("1", "a").put("text", text));
        assertEquals(text, read(container, A, "1").get("text").asText());
    }

    @Test
    @DisplayName("item-too-large-is-413")
    void tooLarge() {
        CosmosContainer container = container();
        ObjectNode item = item("1", "a").put("text", "x".repeat(2 * 1024 * 1024 + 1));
        refused(413, () -> container.createItem(item, A, null));
        gone(container, A, "1");
    }

    /** As this SDK reads everything: by a query without a filter, taken up again at each continuation. */
    @Test
    @DisplayName("item-read-feed-pages")
    void readFeedPages() {
        CosmosContainer container = container();
        for (int i = 0; i < 35; i++) {
            String pk = "key-" + i % 7;
            create(container, new PartitionKey(pk), item(Integer.toString(i), pk));
        }
        List<String> seen = new ArrayList<>();
        String continuation = null;
        int nPages = 0;
        do {
            FeedResponse<ObjectNode> page = container
                    .queryItems("SELECT * FROM c", new CosmosQueryRequestOptions(), ObjectNode.class)
                    .iterableByPage(continuation, 10)
                    .iterator()
                    .next();
            assertTrue(page.getResults().size() <= 10, () -> "a page of " + page.getResults().size());
            page.getResults().forEach(item -> seen.add(item.get("id").asText()));
            continuation = page.getContinuationToken();
            nPages++;
        } while (continuation != null);
        assertEquals(35, seen.size());
        assertEquals(35, Set.copyOf(seen).size(), "no item comes twice");
        assertTrue(nPages >= 4, "35 items do not fit into " + nPages + " pages of ten");
    }

    @Test
    @DisplayName("item-concurrent-creates-one-wins")
    void concurrentCreates() throws InterruptedException {
        CosmosContainer container = container();
        List<Future<?>> writers = new ArrayList<>();
        ExecutorService threads = Executors.newFixedThreadPool(20);
        for (int i = 0; i < 20; i++) {
            ObjectNode item = item("1", "a").put("writer", i);
            writers.add(threads.submit(() -> create(container, A, item)));
        }
        List<Integer> winners = new ArrayList<>();
        for (int i = 0; i < writers.size(); i++) {
            try {
                writers.get(i).get();
                winners.add(i);
            } catch (ExecutionException refusal) {
                refused(409, () -> {
                    throw refusal.getCause();
                });
            }
        }
        threads.shutdown();
        assertEquals(1, winners.size(), () -> "winners " + winners);
        shows(read(container, A, "1"), "writer", winners.get(0).toString());
    }
}
