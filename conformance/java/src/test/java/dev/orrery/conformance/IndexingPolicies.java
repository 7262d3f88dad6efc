package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.ExcludedPath;
import com.azure.cosmos.models.IncludedPath;
import com.azure.cosmos.models.IndexingMode;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.SpatialSpec;
import com.azure.cosmos.models.SpatialType;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class IndexingPolicies extends Scene {
    @Test
    @DisplayName("container-default-indexing-policy")
    void defaultPolicy() {
        IndexingPolicy shown = shown(container());
        assertEquals(IndexingMode.CONSISTENT, shown.getIndexingMode());
        assertTrue(shown.isAutomatic());
        assertEquals(List.of("/*"), included(shown));
        assertEquals(List.of("/\"_etag\"/?"), excluded(shown));
    }

    @Test
    @DisplayName("container-custom-indexing-policy")
    void customPolicy() {
        CompositePath name = new CompositePath().setPath("/name").setOrder(CompositePathSortOrder.ASCENDING);
        CompositePath age = new CompositePath().setPath("/age").setOrder(CompositePathSortOrder.DESCENDING);
        SpatialSpec place = new SpatialSpec()
                .setPath("/place/?")
                .setSpatialTypes(List.of(SpatialType.POINT, SpatialType.POLYGON));
        IndexingPolicy policy = new IndexingPolicy()
                .setAutomatic(true)
                .setIndexingMode(IndexingMode.CONSISTENT)
                .setIncludedPaths(List.of(new IncludedPath("/name/?"), new IncludedPath("/address/*")))
                .setExcludedPaths(List.of(new ExcludedPath("/*"), new ExcludedPath("/blob/?")))
                .setCompositeIndexes(List.of(List.of(name, age)))
                .setSpatialIndexes(List.of(place));

        IndexingPolicy shown = shown(container(properties -> properties.setIndexingPolicy(policy)));
        assertEquals(List.of("/name/?", "/address/*"), included(shown));
        assertTrue(excluded(shown).containsAll(List.of("/*", "/blob/?")), () -> excluded(shown).toString());
        assertEquals(List.of(List.of(name, age)), shown.getCompositeIndexes());
        assertEquals(1, shown.getSpatialIndexes().size());
        SpatialSpec spatial = shown.getSpatialIndexes().get(0);
        assertEquals("/place/?", spatial.getPath());
        List<SpatialType> types = spatial.getSpatialTypes();
        assertTrue(types.containsAll(place.getSpatialTypes()), types::toString);
    }

    @Test
    @DisplayName("container-replace-indexing-policy")
    void replacedPolicy() {
        CosmosContainer container = container();
        CosmosContainerProperties properties = container.read().getProperties();
        String etag = properties.getETag();
        String rid = properties.getResourceId();
        properties.setIndexingPolicy(new IndexingPolicy()
                .setIncludedPaths(List.of(new IncludedPath("/*")))
                .setExcludedPaths(List.of(new ExcludedPath("/large/*"))));
        assertEquals(200, container.replace(properties).getStatusCode());

        CosmosContainerProperties after = container.read().getProperties();
        assertTrue(excluded(after.getIndexingPolicy()).contains("/large/*"));
        assertNotEquals(etag, after.getETag());
        assertEquals(rid, after.getResourceId());
    }

    private static IndexingPolicy shown(CosmosContainer container) {
        return container.read().getProperties().getIndexingPolicy();
    }

    private static List<String> included(IndexingPolicy policy) {
        return policy.getIncludedPaths().stream().map(IncludedPath::getPath).toList();
    }

    private static List<String> excluded(IndexingPolicy policy) {
        return policy.getExcludedPaths().stream().map(ExcludedPath::getPath).toList();
    }
}
