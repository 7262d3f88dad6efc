package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncDatabase;
import com.azure.cosmos.CosmosAsyncUser;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.ContainerChildResourceType;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.CosmosPermissionProperties;
import com.azure.cosmos.models.CosmosPermissionRequestOptions;
import com.azure.cosmos.models.CosmosPermissionResponse;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.CosmosUserProperties;
import com.azure.cosmos.models.CosmosUserResponse;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PermissionMode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Users and permissions, of which only the asynchronous client knows everything. */
class Users extends Scene {
    private static CosmosAsyncDatabase async(CosmosDatabase database) {
        return Server.ASYNC_CLIENT.getDatabase(database.getId());
    }

    private static CosmosAsyncUser user(CosmosDatabase database) {
        CosmosUserResponse created = async(database).createUser(new CosmosUserProperties().setId("ada")).block();
        assertEquals(201, created.getStatusCode());
        return async(database).getUser("ada");
    }

    private static CosmosPermissionProperties reading(CosmosContainer container) {
        return new CosmosPermissionProperties()
                .setId("reading")
                .setPermissionMode(PermissionMode.READ)
                .setContainerName(container.getId());
    }

    private static CosmosPermissionProperties mayRead(CosmosAsyncUser user, CosmosContainer container) {
        return granted(user, reading(container));
    }

    private static CosmosPermissionProperties granted(CosmosAsyncUser user, CosmosPermissionProperties wanted) {
        CosmosPermissionResponse created = user.createPermission(wanted, null).block();
        assertEquals(201, created.getStatusCode());
        return created.getProperties();
    }

    @Test
    @DisplayName("user-create-read-replace-delete")
    void createReadReplaceDelete() {
        CosmosDatabase database = database();
        CosmosAsyncUser user = user(database);
        CosmosUserProperties shown = user.read().block().getProperties();
        assertEquals("ada", shown.getId());
        assertFalse(shown.getETag().isEmpty());
        assertEquals(List.of("ada"), userIds(database));
        refused(409, () -> async(database).createUser(new CosmosUserProperties().setId("ada")).block());

        assertEquals(200, user.replace(shown.setId("grace")).block().getStatusCode());
        refused(404, () -> user.read().block());
        assertEquals(List.of("grace"), userIds(database));
        CosmosAsyncUser renamed = async(database).getUser("grace");
        assertEquals(204, renamed.delete().block().getStatusCode());
        refused(404, () -> renamed.read().block());
        assertEquals(List.of(), userIds(database));
    }

    private static List<String> userIds(CosmosDatabase database) {
        return database.readAllUsers().stream().map(CosmosUserProperties::getId).toList();
    }

    @Test
    @DisplayName("permission-create-read-delete")
    void permission() {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        CosmosAsyncUser user = user(database);
        CosmosPermissionProperties created = mayRead(user, container);
        assertEquals("reading", created.getId());
        assertEquals(PermissionMode.READ, created.getPermissionMode());
        assertEquals(container.getId(), created.getContainerName());
        assertFalse(created.getToken().isEmpty());

        CosmosPermissionRequestOptions options = new CosmosPermissionRequestOptions();
        CosmosPermissionResponse read = user.getPermission("reading").read(options).block();
        assertEquals(200, read.getStatusCode());
        assertFalse(read.getProperties().getToken().isEmpty());
        List<CosmosPermissionProperties> listed = user.readAllPermissions().collectList().block();
        assertEquals(List.of("reading"), listed.stream().map(CosmosPermissionProperties::getId).toList());
        assertEquals(204, user.getPermission("reading").delete(options).block().getStatusCode());
        refused(404, () -> user.getPermission("reading").read(options).block());
    }

    @Test
    @DisplayName("permission-token-reads")
    void tokenReads() {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        create(container, A, item("{'id':'1','pk':'a','n':7}"));
        try (CosmosClient reader = holder(mayRead(user(database), container))) {
            CosmosContainer seen = reader.getDatabase(database.getId()).getContainer(container.getId());
            shows(read(seen, A, "1"), "n", "7");
        }
    }

    @Test
    @DisplayName("permission-token-cannot-write")
    void tokenCannotWrite() {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        create(container, A, item("1", "a"));
        try (CosmosClient reader = holder(mayRead(user(database), container))) {
            CosmosContainer seen = reader.getDatabase(database.getId()).getContainer(container.getId());
            refused(403, () -> seen.createItem(item("2", "a"), A, null));
            refused(403, () -> seen.deleteItem("1", A, null));
        }
        read(container, A, "1");
        gone(container, A, "2");
    }

    @Test
    @DisplayName("permission-of-one-partition-key")
    void onePartitionKey() {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        create(container, A, item("{'id':'1','pk':'a','n':7}"));
        create(container, B, item("{'id':'1','pk':'b','n':8}"));
        CosmosPermissionProperties wanted = reading(container).setResourcePartitionKey(A);
        try (CosmosClient reader = holder(granted(user(database), wanted))) {
            CosmosContainer seen = reader.getDatabase(database.getId()).getContainer(container.getId());
            shows(read(seen, A, "1"), "n", "7");
            assertEquals(List.of(7), numbers(seen, A));
            refused(403, () -> seen.readItem("1", B, ObjectNode.class));
            refused(403, () -> numbers(seen, B));
            refused(403, () -> seen.createItem(item("2", "a"), A, null));
        }
    }

    @Test
    @DisplayName("permission-of-one-item")
    void oneItem() {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        create(container, A, item("{'id':'1','pk':'a','n':7}"));
        create(container, A, item("{'id':'2','pk':'a','n':7}"));
        CosmosPermissionProperties wanted = reading(container)
                .setPermissionMode(PermissionMode.ALL)
                .setResourcePath(ContainerChildResourceType.ITEM, "1")
                .setResourcePartitionKey(A);
        CosmosPatchOperations increment = CosmosPatchOperations.create().increment("/n", 1);
        try (CosmosClient holder = holder(granted(user(database), wanted))) {
            CosmosContainer seen = holder.getDatabase(database.getId()).getContainer(container.getId());
            shows(read(seen, A, "1"), "n", "7");
            seen.replaceItem(item("{'id':'1','pk':'a','n':8}"), "1", A, null);
            seen.patchItem("1", A, increment, ObjectNode.class);
            shows(read(container, A, "1"), "n", "9");
            refused(403, () -> seen.readItem("2", A, ObjectNode.class));
            refused(403, () -> seen.replaceItem(item("2", "a"), "2", A, null));
            refused(403, () -> seen.patchItem("2", A, increment, ObjectNode.class));
            refused(403, () -> seen.deleteItem("2", A, null));
            refused(403, () -> seen.createItem(item("3", "a"), A, null));
            seen.deleteItem("1", A, null);
        }
        gone(container, A, "1");
        shows(read(container, A, "2"), "n", "7");
    }

    private static List<Integer> numbers(CosmosContainer container, PartitionKey key) {
        CosmosQueryRequestOptions options = new CosmosQueryRequestOptions().setPartitionKey(key);
        return container.queryItems("SELECT VALUE c.n FROM c", options, Integer.class).stream().toList();
    }

    @Test
    @DisplayName("read-only-key-cannot-read-permissions")
    void readOnlyKeyCannotReadPermissions() {
        CosmosDatabase database = database();
        CosmosAsyncUser user = user(database);
        mayRead(user, container(database));
        try (CosmosAsyncClient reader = Server.builder().key(Server.READ_ONLY_KEY).buildAsyncClient()) {
            CosmosAsyncUser seen = reader.getDatabase(database.getId()).getUser("ada");
            assertEquals("ada", seen.read().block().getProperties().getId());
            CosmosPermissionRequestOptions options = new CosmosPermissionRequestOptions();
            refused(403, () -> seen.getPermission("reading").read(options).block());
            refused(403, () -> seen.readAllPermissions().collectList().block());
        }
        assertEquals(1, user.readAllPermissions().collectList().block().size());
    }

    /**
     * A client with the permission's token. Given the permission itself, the SDK finds no token for the partition
     * ranges, which it reads by resource id while the permission names its container.
     */
    private static CosmosClient holder(CosmosPermissionProperties permission) {
        return Server.builder().resourceToken(permission.getToken()).buildClient();
    }
}
