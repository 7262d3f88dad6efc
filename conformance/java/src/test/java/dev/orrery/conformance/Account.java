package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.SecureRandom;
import java.util.Base64;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class Account extends Scene {
    @Test
    @DisplayName("wrong-key-is-401")
    void wrongKey() {
        byte[] other = new byte[64];
        new SecureRandom().nextBytes(other);
        String key = Base64.getEncoder().encodeToString(other);
        // The client reads the account while it is built and wraps what it is told.
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
        try (CosmosClient client = Server.builder()
                .endpoint(Server.SECURE_ENDPOINT)
                .key(Server.KEY)
                .contentResponseOnWriteEnabled(true)
                .buildClient()) {
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

    private static void overTls(CosmosItemResponse<?> response) {
        String diagnostics = response.getDiagnostics().toString();
        assertTrue(diagnostics.contains("\"endpoint\":\"" + Server.SECURE_ENDPOINT), diagnostics);
        assertFalse(diagnostics.contains("\"endpoint\":\"" + Server.ENDPOINT), diagnostics);
    }
}
