package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.fail;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.function.Executable;

/** What one test works with: databases and containers of its own, which go away with it, and checks of answers. */
abstract class Scene {
    /** Longest wait for anything that happens by itself, such as an expiry. */
    private static final Duration PATIENCE = Duration.ofSeconds(120);

    private static final Duration PAUSE = Duration.ofMillis(100);
    private static final ObjectMapper JSON = new ObjectMapper();

    static final PartitionKey A = new PartitionKey("a");
    static final PartitionKey B = new PartitionKey("b");

    private final List<CosmosDatabase> databases = new ArrayList<>();

    @AfterEach
    void deleteDatabases() {
        for (CosmosDatabase database : databases) {
            try {
                database.delete();
            } catch (CosmosException exception) {
                assertEquals(404, exception.getStatusCode(), "a database can be deleted unless the test did so");
            }
        }
    }

    static String unique(String prefix) {
        return prefix + "-java-" + UUID.randomUUID();
    }

    /** Sees to it that a database goes away with the test. */
    CosmosDatabase owned(CosmosDatabase database) {
        databases.add(database);
        return database;
    }

    CosmosDatabase database() {
        String id = unique("db");
        assertEquals(201, Server.CLIENT.createDatabase(id).getStatusCode());
        return owned(Server.CLIENT.getDatabase(id));
    }

    CosmosContainer container() {
        return container(properties -> {});
    }

    CosmosContainer container(Consumer<CosmosContainerProperties> change) {
        return container(database(), change);
    }

    static CosmosContainer container(CosmosDatabase database) {
        return container(database, properties -> {});
    }

    /** A container with the key /pk unless the change says otherwise. */
    static CosmosContainer container(CosmosDatabase database, Consumer<CosmosContainerProperties> change) {
        CosmosContainerProperties properties = new CosmosContainerProperties(unique("items"), "/pk");
        change.accept(properties);
        assertEquals(201, database.createContainer(properties).getStatusCode());
        return database.getContainer(properties.getId());
    }

    /** An item from JSON in which single quotes stand for double ones. */
    static ObjectNode item(String text) {
        try {
            return (ObjectNode) JSON.readTree(text.replace('\'', '"'));
        } catch (JsonProcessingException exception) {
            throw new IllegalArgumentException(text, exception);
        }
    }

    static ObjectNode item(String id, String pk) {
        return JSON.createObjectNode().put("id", id).put("pk", pk);
    }

    static CosmosItemResponse<ObjectNode> create(CosmosContainer container, PartitionKey key, ObjectNode item) {
        CosmosItemResponse<ObjectNode> created = container.createItem(item, key, new CosmosItemRequestOptions());
        assertEquals(201, created.getStatusCode());
        return created;
    }

    static ObjectNode read(CosmosContainer container, PartitionKey key, String id) {
        CosmosItemResponse<ObjectNode> read = container.readItem(id, key, ObjectNode.class);
        assertEquals(200, read.getStatusCode());
        return read.getItem();
    }

    static void gone(CosmosContainer container, PartitionKey key, String id) {
        refused(404, () -> container.readItem(id, key, ObjectNode.class));
    }

    static CosmosException refused(int status, Executable call) {
        CosmosException refusal = assertThrows(CosmosException.class, call);
        assertEquals(status, refusal.getStatusCode(), refusal::getShortMessage);
        return refusal;
    }

    /** Checks one property of an item by its JSON text, in which single quotes stand for double ones. */
    static void shows(ObjectNode item, String property, String wanted) {
        JsonNode value = item.get(property);
        assertNotNull(value, () -> property + " is missing in " + item);
        assertEquals(wanted.replace('\'', '"'), value.toString(), property);
    }

    static void eventually(String what, BooleanSupplier condition) throws InterruptedException {
        Instant deadline = Instant.now().plus(PATIENCE);
        while (!condition.getAsBoolean()) {
            if (Instant.now().isAfter(deadline)) {
                fail(what + " did not happen within " + PATIENCE.toSeconds() + " s");
            }
            Thread.sleep(PAUSE.toMillis());
        }
    }

    static boolean isGone(CosmosContainer container, PartitionKey key, String id) {
        try {
            container.readItem(id, key, ObjectNode.class);
            return false;
        } catch (CosmosException exception) {
            assertEquals(404, exception.getStatusCode());
            return true;
        }
    }
}
