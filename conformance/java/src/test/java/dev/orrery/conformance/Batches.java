package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchItemRequestOptions;
import com.azure.cosmos.models.CosmosBatchOperationResult;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkOperationResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class Batches extends Scene {
    private static List<CosmosBatchOperationResult> execute(
            CosmosContainer container, CosmosBatch batch, boolean succeeds, Integer... statuses) {
        CosmosBatchResponse answer = container.executeCosmosBatch(batch);
        List<CosmosBatchOperationResult> results = answer.getResults();
        assertEquals(Arrays.asList(statuses), results.stream().map(CosmosBatchOperationResult::getStatusCode).toList());
        assertEquals(succeeds, answer.isSuccessStatusCode(), () -> "status " + answer.getStatusCode());
        return results;
    }

    @Test
    @DisplayName("batch-all-operations")
    void allOperations() {
        CosmosContainer container = container();
        for (String id : List.of("read", "replaced", "patched", "deleted")) {
            create(container, A, item(id, "a").put("n", 1));
        }
        CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
        batch.createItemOperation(item("created", "a"));
        batch.upsertItemOperation(item("upserted", "a"));
        batch.readItemOperation("read");
        batch.replaceItemOperation("replaced", item("replaced", "a").put("n", 5));
        batch.patchItemOperation("patched", CosmosPatchOperations.create().increment("/n", 1));
        batch.deleteItemOperation("deleted");
        List<CosmosBatchOperationResult> results = execute(container, batch, true, 201, 201, 200, 200, 200, 204);

        shows(results.get(2).getItem(ObjectNode.class), "id", "'read'");
        results.forEach(result -> assertTrue(result.getRequestCharge() > 0, "an operation without a charge"));
        results.subList(0, 5).forEach(result -> assertFalse(result.getETag().isEmpty(), "a write without an etag"));
        read(container, A, "created");
        read(container, A, "upserted");
        shows(read(container, A, "replaced"), "n", "5");
        shows(read(container, A, "patched"), "n", "2");
        gone(container, A, "deleted");
    }

    @Test
    @DisplayName("batch-is-atomic")
    void atomic() {
        CosmosContainer container = container();
        create(container, A, item("{'id':'taken','pk':'a','n':1}"));
        CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
        batch.createItemOperation(item("before", "a"));
        batch.createItemOperation(item("{'id':'taken','pk':'a','n':2}"));
        batch.createItemOperation(item("after", "a"));
        execute(container, batch, false, 424, 409, 424);
        gone(container, A, "before");
        gone(container, A, "after");
        shows(read(container, A, "taken"), "n", "1");
    }

    @Test
    @DisplayName("batch-if-match")
    void ifMatch() {
        CosmosContainer container = container();
        String stale = ItemConditions.staleEtag(container);
        CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
        batch.createItemOperation(item("2", "a"));
        batch.replaceItemOperation(
                "1", item("1", "a").put("n", 3), new CosmosBatchItemRequestOptions().setIfMatchETag(stale));
        execute(container, batch, false, 424, 412);
        gone(container, A, "2");
        shows(read(container, A, "1"), "n", "2");
    }

    @Test
    @DisplayName("batch-sees-its-own-writes")
    void seesItsOwnWrites() {
        CosmosContainer container = container();
        CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
        batch.createItemOperation(item("1", "a").put("n", 9));
        batch.readItemOperation("1");
        List<CosmosBatchOperationResult> results = execute(container, batch, true, 201, 200);
        shows(results.get(1).getItem(ObjectNode.class), "n", "9");
    }

    @Test
    @DisplayName("bulk-many-items")
    void bulk() {
        CosmosContainer container = container();
        create(container, new PartitionKey("key-0"), item("0", "key-0").put("first", true));
        List<CosmosItemOperation> operations = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            String pk = "key-" + i % 20;
            ObjectNode item = item(Integer.toString(i), pk).put("n", i);
            operations.add(CosmosBulkOperations.getCreateItemOperation(item, new PartitionKey(pk)));
        }
        int nAnswers = 0;
        for (CosmosBulkOperationResponse<Object> answer : container.executeBulkOperations(operations)) {
            assertNull(answer.getException());
            String id = ((ObjectNode) answer.getOperation().getItem()).get("id").asText();
            assertEquals(id.equals("0") ? 409 : 201, answer.getResponse().getStatusCode(), () -> "item " + id);
            nAnswers++;
        }
        assertEquals(200, nAnswers);
        assertTrue(read(container, new PartitionKey("key-0"), "0").has("first"));
        for (int i = 1; i < 200; i++) {
            ObjectNode item = read(container, new PartitionKey("key-" + i % 20), Integer.toString(i));
            shows(item, "n", Integer.toString(i));
        }
    }

    @Test
    @DisplayName("delete-by-partition-key")
    void deleteByPartitionKey() throws InterruptedException {
        CosmosContainer container = container();
        for (int i = 0; i < 10; i++) {
            create(container, A, item(Integer.toString(i), "a"));
            create(container, B, item(Integer.toString(i), "b"));
        }
        container.deleteAllItemsByPartitionKey(A, new CosmosItemRequestOptions());
        for (int i = 0; i < 10; i++) {
            String id = Integer.toString(i);
            eventually("the deletion of item " + id, () -> isGone(container, A, id));
            read(container, B, id);
        }
    }
}
