package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class Patches extends Scene {
    private CosmosContainer patchable() {
        CosmosContainer container = container();
        create(container, A, item(
                "{'id':'1','pk':'a','n':10,'name':'old','spare':true,'tags':['b'],'inner':{'x':1}}"));
        return container;
    }

    /** The item as it is after the operations. */
    private ObjectNode patched(CosmosPatchOperations operations, CosmosPatchItemRequestOptions options) {
        CosmosContainer container = patchable();
        CosmosItemResponse<ObjectNode> answer = container.patchItem("1", A, operations, options, ObjectNode.class);
        assertEquals(200, answer.getStatusCode());
        ObjectNode item = read(container, A, "1");
        assertEquals(answer.getItem(), item);
        return item;
    }

    private ObjectNode patched(CosmosPatchOperations operations) {
        return patched(operations, new CosmosPatchItemRequestOptions());
    }

    @Test
    @DisplayName("patch-set-add-replace-remove")
    void setAddReplaceRemove() {
        ObjectNode item = patched(CosmosPatchOperations.create()
                .set("/inner/y", "set")
                .add("/added", Map.of("deep", List.of(1, 2)))
                .replace("/name", "new")
                .remove("/spare"));
        shows(item, "inner", "{'x':1,'y':'set'}");
        shows(item, "added", "{'deep':[1,2]}");
        shows(item, "name", "'new'");
        assertFalse(item.has("spare"));
        shows(item, "n", "10");
    }

    @Test
    @DisplayName("patch-increment")
    void increment() {
        ObjectNode item = patched(CosmosPatchOperations.create()
                .increment("/n", 5)
                .increment("/inner/x", 0.5)
                .increment("/fresh", 7));
        shows(item, "n", "15");
        shows(item, "inner", "{'x':1.5}");
        shows(item, "fresh", "7");
    }

    @Test
    @DisplayName("patch-array-insert-append")
    void arrays() {
        shows(patched(CosmosPatchOperations.create().add("/tags/0", "a").add("/tags/-", "c")), "tags", "['a','b','c']");
    }

    @Test
    @DisplayName("patch-move")
    void move() {
        ObjectNode item = patched(CosmosPatchOperations.create().move("/name", "/inner/name"));
        shows(item, "inner", "{'x':1,'name':'old'}");
        assertFalse(item.has("name"));
    }

    @Test
    @DisplayName("patch-condition-holds")
    void conditionHolds() {
        CosmosPatchItemRequestOptions when =
                new CosmosPatchItemRequestOptions().setFilterPredicate("FROM c WHERE c.n = 10 AND c.name = 'old'");
        shows(patched(CosmosPatchOperations.create().set("/name", "new"), when), "name", "'new'");
    }

    @Test
    @DisplayName("patch-condition-fails-is-412")
    void conditionFails() {
        CosmosContainer container = patchable();
        CosmosPatchItemRequestOptions when =
                new CosmosPatchItemRequestOptions().setFilterPredicate("FROM c WHERE c.n > 10");
        CosmosPatchOperations set = CosmosPatchOperations.create().set("/name", "new");
        refused(412, () -> container.patchItem("1", A, set, when, ObjectNode.class));
        shows(read(container, A, "1"), "name", "'old'");
    }

    @Test
    @DisplayName("patch-missing-path-is-400")
    void missingPath() {
        CosmosContainer container = patchable();
        CosmosPatchOperations operations = CosmosPatchOperations.create().set("/name", "new").remove("/nowhere");
        refused(400, () -> container.patchItem("1", A, operations, ObjectNode.class));
        shows(read(container, A, "1"), "name", "'old'");
    }

    @Test
    @DisplayName("patch-missing-item-is-404")
    void missingItem() {
        CosmosContainer container = container();
        CosmosPatchOperations set = CosmosPatchOperations.create().set("/name", "new");
        refused(404, () -> container.patchItem("1", A, set, ObjectNode.class));
    }
}
