package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class ItemKeys extends Scene {
    private static final PartitionKey NULL = new PartitionKeyBuilder().addNullValue().build();

    @Test
    @DisplayName("item-number-key")
    void number() {
        CosmosContainer container = container();
        for (double number : List.of(0.0, 42.0, -7.0, 1.5, 1e15)) {
            PartitionKey key = new PartitionKey(number);
            create(container, key, item("{'id':'1','pk':" + number + "}"));
            assertEquals(number, read(container, key, "1").get("pk").asDouble());
        }
        // The text of a number is another key than the number, a number without a fraction is the same.
        gone(container, new PartitionKey("42"), "1");
        read(container, new PartitionKey(42), "1");
    }

    @Test
    @DisplayName("item-boolean-key")
    void truth() {
        CosmosContainer container = container();
        create(container, new PartitionKey(true), item("{'id':'1','pk':true}"));
        create(container, new PartitionKey(false), item("{'id':'1','pk':false}"));
        shows(read(container, new PartitionKey(true), "1"), "pk", "true");
        shows(read(container, new PartitionKey(false), "1"), "pk", "false");
        gone(container, new PartitionKey("true"), "1");
    }

    @Test
    @DisplayName("item-null-key")
    void nothing() {
        CosmosContainer container = container();
        create(container, NULL, item("{'id':'1','pk':null}"));
        shows(read(container, NULL, "1"), "pk", "null");
        gone(container, new PartitionKey("null"), "1");
        gone(container, PartitionKey.NONE, "1");
    }

    @Test
    @DisplayName("item-missing-key")
    void none() {
        CosmosContainer container = container();
        create(container, PartitionKey.NONE, item("{'id':'1','n':7}"));
        shows(read(container, PartitionKey.NONE, "1"), "n", "7");
        assertFalse(read(container, PartitionKey.NONE, "1").has("pk"));
        gone(container, NULL, "1");
        assertEquals(204, container.deleteItem("1", PartitionKey.NONE, new CosmosItemRequestOptions()).getStatusCode());
        gone(container, PartitionKey.NONE, "1");
    }

    @Test
    @DisplayName("item-hierarchical-key")
    void hierarchical() {
        CosmosContainer container = container(Containers::hierarchical);
        PartitionKey full = new PartitionKeyBuilder().add("t1").add(7).add(true).build();
        PartitionKey other = new PartitionKeyBuilder().add("t1").add(7).add(false).build();
        create(container, full, item("{'id':'1','tenant':'t1','user':7,'session':true,'n':1}"));
        create(container, other, item("{'id':'1','tenant':'t1','user':7,'session':false,'n':2}"));
        shows(read(container, full, "1"), "n", "1");
        shows(read(container, other, "1"), "n", "2");
        assertEquals(204, container.deleteItem("1", full, new CosmosItemRequestOptions()).getStatusCode());
        gone(container, full, "1");
        read(container, other, "1");
    }

    @Test
    @DisplayName("item-key-mismatch-is-400")
    void mismatch() {
        CosmosContainer container = container();
        refused(400, () -> container.createItem(item("1", "b"), A, null));
        gone(container, A, "1");
        gone(container, B, "1");
    }
}
