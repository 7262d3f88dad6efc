package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class Partitions extends Scene {
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
}
