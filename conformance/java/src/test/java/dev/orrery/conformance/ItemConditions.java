package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.IndexingDirective;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Etags, what answers carry, uniqueness and lifetimes. */
class ItemConditions extends Scene {
    private static final ObjectNode SECOND = item("{'id':'1','pk':'a','n':2}");

    private static CosmosItemRequestOptions ifMatch(String etag) {
        return new CosmosItemRequestOptions().setIfMatchETag(etag);
    }

    /** Changes the item of a new container and gives the etag it had before. */
    static String staleEtag(CosmosContainer container) {
        String etag = create(container, A, item("{'id':'1','pk':'a','n':1}")).getETag();
        container.replaceItem(SECOND, "1", A, new CosmosItemRequestOptions());
        return etag;
    }

    @Test
    @DisplayName("item-etag-if-match")
    void currentEtag() {
        CosmosContainer container = container();
        String etag = create(container, A, item("{'id':'1','pk':'a','n':1}")).getETag();
        CosmosItemResponse<ObjectNode> replaced = container.replaceItem(SECOND, "1", A, ifMatch(etag));
        assertEquals(200, replaced.getStatusCode());
        shows(read(container, A, "1"), "n", "2");
        assertEquals(204, container.deleteItem("1", A, ifMatch(replaced.getETag())).getStatusCode());
    }

    @Test
    @DisplayName("item-stale-etag-is-412")
    void staleEtag() {
        CosmosContainer container = container();
        String stale = staleEtag(container);
        ObjectNode third = item("{'id':'1','pk':'a','n':3}");
        refused(412, () -> container.replaceItem(third, "1", A, ifMatch(stale)));
        refused(412, () -> container.upsertItem(third, A, ifMatch(stale)));
        shows(read(container, A, "1"), "n", "2");
    }

    @Test
    @DisplayName("item-delete-stale-etag-is-412")
    void deleteWithStaleEtag() {
        CosmosContainer container = container();
        String stale = staleEtag(container);
        refused(412, () -> container.deleteItem("1", A, ifMatch(stale)));
        shows(read(container, A, "1"), "n", "2");
    }

    @Test
    @DisplayName("item-read-not-modified")
    void notModified() {
        CosmosContainer container = container();
        String stale = staleEtag(container);
        String current = read(container, A, "1").get("_etag").asText();
        CosmosItemRequestOptions unless = new CosmosItemRequestOptions().setIfNoneMatchETag(current);
        CosmosItemResponse<ObjectNode> same = container.readItem("1", A, unless, ObjectNode.class);
        assertEquals(304, same.getStatusCode());
        assertNull(same.getItem());
        unless.setIfNoneMatchETag(stale);
        assertEquals(200, container.readItem("1", A, unless, ObjectNode.class).getStatusCode());
    }

    @Test
    @DisplayName("item-no-content-response")
    void noContent() {
        CosmosContainer container = container();
        CosmosItemRequestOptions silent = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(false);
        isSilent(201, container.createItem(item("1", "a"), A, silent));
        isSilent(200, container.upsertItem(item("1", "a"), A, silent));
        isSilent(200, container.replaceItem(item("1", "a"), "1", A, silent));
        CosmosPatchItemRequestOptions silentPatch = new CosmosPatchItemRequestOptions();
        silentPatch.setContentResponseOnWriteEnabled(false);
        CosmosPatchOperations set = CosmosPatchOperations.create().set("/n", 1);
        isSilent(200, container.patchItem("1", A, set, silentPatch, ObjectNode.class));

        assertNotNull(container.replaceItem(item("1", "a"), "1", A, new CosmosItemRequestOptions()).getItem());
    }

    private static void isSilent(int status, CosmosItemResponse<ObjectNode> response) {
        assertEquals(status, response.getStatusCode());
        assertNull(response.getItem());
        assertFalse(response.getETag().isEmpty());
    }

    @Test
    @DisplayName("item-request-charge")
    void requestCharge() {
        CosmosContainer container = container();
        ObjectNode item = item("{'id':'1','pk':'a','n':1}");
        CosmosItemRequestOptions plain = new CosmosItemRequestOptions();
        CosmosPatchOperations increment = CosmosPatchOperations.create().increment("/n", 1);
        CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
        batch.readItemOperation("1");
        charged("create", container.createItem(item, A, plain).getRequestCharge());
        charged("read", container.readItem("1", A, ObjectNode.class).getRequestCharge());
        charged("replace", container.replaceItem(item, "1", A, plain).getRequestCharge());
        charged("upsert", container.upsertItem(item, A, plain).getRequestCharge());
        charged("patch", container.patchItem("1", A, increment, ObjectNode.class).getRequestCharge());
        charged("batch", container.executeCosmosBatch(batch).getRequestCharge());
        charged("delete", container.deleteItem("1", A, plain).getRequestCharge());
        charged("miss", refused(404, () -> container.readItem("1", A, ObjectNode.class)).getRequestCharge());
    }

    private static void charged(String what, double charge) {
        assertTrue(charge > 0, () -> what + " has the charge " + charge);
    }

    @Test
    @DisplayName("item-session-token")
    void sessionToken() {
        CosmosContainer container = container();
        for (int n = 0; n < 3; n++) {
            String token = container.upsertItem(item("1", "a").put("n", n), A, null).getSessionToken();
            assertTrue(token.matches("\\d+:-?\\d+#.+"), token);
            CosmosItemRequestOptions after = new CosmosItemRequestOptions().setSessionToken(token);
            CosmosItemResponse<ObjectNode> read = container.readItem("1", A, after, ObjectNode.class);
            assertEquals(200, read.getStatusCode());
            shows(read.getItem(), "n", Integer.toString(n));
        }
    }

    @Test
    @DisplayName("item-unique-key-conflict-is-409")
    void uniqueKey() {
        CosmosContainer container = container(properties -> properties.setUniqueKeyPolicy(
                new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/email"))))));
        create(container, A, item("{'id':'1','pk':'a','email':'x@example.com'}"));
        refused(409, () -> container.createItem(item("{'id':'2','pk':'a','email':'x@example.com'}"), A, null));
        gone(container, A, "2");
        create(container, B, item("{'id':'2','pk':'b','email':'x@example.com'}"));
        create(container, A, item("{'id':'2','pk':'a','email':'y@example.com'}"));
    }

    @Test
    @DisplayName("item-ttl-expires")
    void expires() throws InterruptedException {
        CosmosContainer container = container(properties -> properties.setDefaultTimeToLiveInSeconds(-1));
        create(container, A, item("{'id':'short','pk':'a','ttl':1}"));
        create(container, A, item("long", "a"));
        eventually("the expiry", () -> isGone(container, A, "short"));
        read(container, A, "long");
        // Gone means gone: the id is free again.
        create(container, A, item("short", "a"));
    }

    @Test
    @DisplayName("item-ttl-never")
    void neverExpires() throws InterruptedException {
        CosmosContainer container = container(properties -> properties.setDefaultTimeToLiveInSeconds(1));
        create(container, A, item("{'id':'always','pk':'a','ttl':-1}"));
        create(container, A, item("default", "a"));
        eventually("the expiry", () -> isGone(container, A, "default"));
        shows(read(container, A, "always"), "ttl", "-1");
    }

    @Test
    @DisplayName("item-not-indexed")
    void notIndexed() {
        CosmosContainer container = container(properties -> {});
        create(container, A, item("{'id':'1','pk':'a','n':5}"));
        CosmosItemRequestOptions hidden = new CosmosItemRequestOptions().setIndexingDirective(IndexingDirective.EXCLUDE);
        container.createItem(item("{'id':'2','pk':'a','n':5}"), A, hidden);
        List<String> found = container
                .queryItems(
                        "SELECT VALUE c.id FROM c WHERE c.n = 5 ORDER BY c.id",
                        new CosmosQueryRequestOptions().setPartitionKey(A),
                        String.class)
                .stream()
                .toList();
        assertEquals(List.of("1", "2"), found);
    }
}
