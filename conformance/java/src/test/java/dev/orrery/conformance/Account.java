package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosDiagnostics;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.ResourceLock;

class Account extends Scene {
    /** What a scenario holds that rotates this key: each rotation makes worthless what another uses. */
    private static final String SECONDARY_KEY = "the secondary key";

    @Test
    @DisplayName("wrong-key-is-401")
    void wrongKey() {
        byte[] other = new byte[64];
        new SecureRandom().nextBytes(other);
        String key = Base64.getEncoder().encodeToString(other);
        refusedWhileBuilt(key);
    }

    /** The client reads the account while it is built and wraps what it is told. */
    private static void refusedWhileBuilt(String key) {
        RuntimeException failure = assertThrows(RuntimeException.class, () -> Server.builder().key(key).buildClient());
        refused(401, () -> {
            throw failure.getCause();
        });
    }

    @Test
    @DisplayName("read-only-key-reads")
    void readOnlyKeyReads() {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        create(container, A, item("{'id':'1','pk':'a','n':7}"));
        try (CosmosClient reader = Server.builder().key(Server.READ_ONLY_KEY).buildClient()) {
            shows(read(seenBy(reader, database, container), A, "1"), "n", "7");
        }
    }

    @Test
    @DisplayName("read-only-key-cannot-write")
    void readOnlyKeyCannotWrite() {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        create(container, A, item("1", "a"));
        try (CosmosClient reader = Server.builder().key(Server.READ_ONLY_KEY).buildClient()) {
            CosmosContainer seen = seenBy(reader, database, container);
            refused(403, () -> seen.createItem(item("2", "a"), A, null));
            refused(403, () -> seen.deleteItem("1", A, null));
        }
        read(container, A, "1");
        gone(container, A, "2");
    }

    private static CosmosContainer seenBy(CosmosClient client, CosmosDatabase database, CosmosContainer container) {
        return client.getDatabase(database.getId()).getContainer(container.getId());
    }

    @Test
    @DisplayName("https-with-local-authority")
    void httpsWithLocalAuthority() {
        try (CosmosClient client = secureClient()) {
            String id = unique("db");
            assertEquals(201, client.createDatabase(id).getStatusCode());
            owned(Server.CLIENT.getDatabase(id));
            CosmosContainer container = container(client.getDatabase(id));
            overTls(create(container, A, item("{'id':'1','pk':'a','n':1}")));
            CosmosItemResponse<ObjectNode> read = container.readItem("1", A, ObjectNode.class);
            overTls(read);
            shows(read.getItem(), "n", "1");
            CosmosItemResponse<Object> deleted = container.deleteItem("1", A, new CosmosItemRequestOptions());
            assertEquals(204, deleted.getStatusCode());
            overTls(deleted);
        }
    }

    private static CosmosClient secureClient() {
        return Server.builder()
                .endpoint(Server.SECURE_ENDPOINT)
                .key(Server.KEY)
                .contentResponseOnWriteEnabled(true)
                .buildClient();
    }

    @Test
    @DisplayName("tls-all-basic-operations")
    void allBasicOperationsOverTls() {
        try (CosmosClient client = secureClient()) {
            String id = unique("db");
            assertEquals(201, client.createDatabase(id).getStatusCode());
            owned(Server.CLIENT.getDatabase(id));
            CosmosContainer container = container(client.getDatabase(id));
            write(container);
            List<FeedResponse<Integer>> pages = container
                    .queryItems("SELECT VALUE c.n FROM c", new CosmosQueryRequestOptions(), Integer.class)
                    .streamByPage(2)
                    .toList();
            pages.forEach(page -> overTls(page.getCosmosDiagnostics()));
            assertTrue(pages.size() >= 3 && pages.stream().allMatch(page -> page.getResults().size() <= 2));
            List<Integer> rows = pages.stream().flatMap(page -> page.getResults().stream()).sorted().toList();
            assertEquals(List.of(3, 4, 5, 6, 7, 11), rows);
            List<String> changes = ChangeFeeds.beginning(container).seen();
            assertEquals(List.of("1:11", "3:3", "4:4", "5:5", "6:6", "7:7"), changes);
        }
    }

    /** Every kind of write once. */
    private static void write(CosmosContainer container) {
        CosmosItemRequestOptions options = new CosmosItemRequestOptions();
        overTls(create(container, A, item("{'id':'1','pk':'a','n':1}")));
        CosmosItemResponse<ObjectNode> upserted = container.upsertItem(item("{'id':'2','pk':'a','n':2}"), A, options);
        assertEquals(201, upserted.getStatusCode());
        overTls(upserted);
        ObjectNode next = item("{'id':'1','pk':'a','n':10}");
        CosmosItemResponse<ObjectNode> replaced = container.replaceItem(next, "1", A, options);
        assertEquals(200, replaced.getStatusCode());
        overTls(replaced);
        CosmosPatchOperations more = CosmosPatchOperations.create().increment("/n", 1);
        CosmosItemResponse<ObjectNode> patched = container.patchItem("1", A, more, ObjectNode.class);
        assertEquals(200, patched.getStatusCode());
        overTls(patched);
        CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
        for (int n = 3; n < 8; n++) {
            batch.createItemOperation(item(Integer.toString(n), "a").put("n", n));
        }
        CosmosBatchResponse created = container.executeCosmosBatch(batch);
        assertEquals(200, created.getStatusCode());
        overTls(created.getDiagnostics());
        CosmosItemResponse<Object> deleted = container.deleteItem("2", A, options);
        assertEquals(204, deleted.getStatusCode());
        overTls(deleted);
        gone(container, A, "2");
    }

    @Test
    @DisplayName("key-secondary-reads-and-writes")
    @ResourceLock(SECONDARY_KEY)
    void secondaryKey() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        try (CosmosClient client = Server.builder()
                .key(Admin.rotateSecondaryKey())
                .contentResponseOnWriteEnabled(true)
                .buildClient()) {
            CosmosContainer seen = seenBy(client, database, container);
            create(seen, A, item("{'id':'1','pk':'a','n':7}"));
            shows(read(seen, A, "1"), "n", "7");
            assertEquals(204, seen.deleteItem("1", A, new CosmosItemRequestOptions()).getStatusCode());
        }
        gone(container, A, "1");
    }

    @Test
    @DisplayName("key-rotation-refuses-the-old-key")
    @ResourceLock(SECONDARY_KEY)
    void rotation() throws Exception {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        create(container, A, item("{'id':'1','pk':'a','n':7}"));
        String oldKey = Admin.rotateSecondaryKey();
        String newKey;
        try (CosmosClient client = Server.builder().key(oldKey).buildClient()) {
            CosmosContainer seen = seenBy(client, database, container);
            shows(read(seen, A, "1"), "n", "7");
            newKey = Admin.rotateSecondaryKey();
            refused(401, () -> seen.readItem("1", A, ObjectNode.class));
        }
        refusedWhileBuilt(oldKey);
        try (CosmosClient client = Server.builder().key(newKey).buildClient()) {
            shows(read(seenBy(client, database, container), A, "1"), "n", "7");
        }
        shows(read(container, A, "1"), "n", "7");
    }

    private static void overTls(CosmosItemResponse<?> response) {
        overTls(response.getDiagnostics());
    }

    private static void overTls(CosmosDiagnostics shown) {
        String diagnostics = shown.toString();
        assertTrue(diagnostics.contains("\"endpoint\":\"" + Server.SECURE_ENDPOINT), diagnostics);
        assertFalse(diagnostics.contains("\"endpoint\":\"" + Server.ENDPOINT), diagnostics);
    }
}
