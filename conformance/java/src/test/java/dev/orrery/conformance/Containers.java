package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosContainerResponse;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import com.azure.cosmos.util.CosmosPagedIterable;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class Containers extends Scene {
    @Test
    @DisplayName("container-create-read-delete")
    void createReadDelete() {
        CosmosContainer container = container(properties ->
                properties.getPartitionKeyDefinition().setVersion(PartitionKeyDefinitionVersion.V2));
        CosmosContainerResponse read = container.read();
        assertEquals(200, read.getStatusCode());
        CosmosContainerProperties shown = read.getProperties();
        assertEquals(container.getId(), shown.getId());
        assertEquals(List.of("/pk"), shown.getPartitionKeyDefinition().getPaths());
        assertEquals(PartitionKeyDefinitionVersion.V2, shown.getPartitionKeyDefinition().getVersion());
        assertEquals(12, shown.getResourceId().length(), "a _rid of 8 bytes");
        assertEquals(read.getResponseHeaders().get("etag"), shown.getETag());
        assertEquals(204, container.delete().getStatusCode());
        refused(404, container::read);
    }

    @Test
    @DisplayName("container-create-twice-is-409")
    void createTwice() {
        CosmosDatabase database = database();
        CosmosContainer container = container(database);
        refused(409, () -> database.createContainer(container.getId(), "/pk"));
    }

    @Test
    @DisplayName("container-missing-is-404")
    void missing() {
        CosmosContainer container = database().getContainer("missing");
        refused(404, container::read);
        refused(404, container::delete);
    }

    @Test
    @DisplayName("container-odd-name")
    void oddName() {
        CosmosDatabase database = database();
        database.createContainer("100% größe", "/pk");
        CosmosContainer container = database.getContainer("100% größe");
        container.upsertItem(item("{'id':'1','pk':'a','n':1}"), A, null);
        shows(read(container, A, "1"), "n", "1");
        assertEquals("100% größe", container.read().getProperties().getId());
    }

    @Test
    @DisplayName("container-list-and-query")
    void listAndQuery() {
        CosmosDatabase database = database();
        String first = container(database).getId();
        String second = container(database).getId();
        assertEquals(Set.of(first, second), Set.copyOf(ids(database.readAllContainers())));
        SqlQuerySpec query =
                new SqlQuerySpec("SELECT * FROM c WHERE c.id = @id", List.of(new SqlParameter("@id", second)));
        assertEquals(List.of(second), ids(database.queryContainers(query)));
    }

    private static List<String> ids(CosmosPagedIterable<CosmosContainerProperties> containers) {
        return containers.stream().map(CosmosContainerProperties::getId).collect(Collectors.toList());
    }

    @Test
    @DisplayName("container-replace-ttl")
    void replaceTtl() {
        CosmosContainer container = container();
        CosmosContainerProperties properties = container.read().getProperties();
        assertNull(properties.getDefaultTimeToLiveInSeconds());
        String etag = properties.getETag();
        properties.setDefaultTimeToLiveInSeconds(3600);
        assertEquals(200, container.replace(properties).getStatusCode());
        CosmosContainerProperties shown = container.read().getProperties();
        assertEquals(3600, shown.getDefaultTimeToLiveInSeconds());
        assertNotEquals(etag, shown.getETag());
    }

    @Test
    @DisplayName("container-partition-key-cannot-change")
    void partitionKeyCannotChange() {
        CosmosContainer container = container();
        CosmosContainerProperties changed = container.read().getProperties();
        changed.setPartitionKeyDefinition(new PartitionKeyDefinition().setPaths(List.of("/other")));
        refused(400, () -> container.replace(changed));
        CosmosContainerProperties shown = container.read().getProperties();
        assertEquals(List.of("/pk"), shown.getPartitionKeyDefinition().getPaths());
    }

    static void hierarchical(CosmosContainerProperties properties) {
        properties.setPartitionKeyDefinition(new PartitionKeyDefinition()
                .setKind(PartitionKind.MULTI_HASH)
                .setVersion(PartitionKeyDefinitionVersion.V2)
                .setPaths(List.of("/tenant", "/user", "/session")));
    }

    @Test
    @DisplayName("container-hierarchical-key")
    void hierarchicalKey() {
        PartitionKeyDefinition shown =
                container(Containers::hierarchical).read().getProperties().getPartitionKeyDefinition();
        assertEquals(PartitionKind.MULTI_HASH, shown.getKind());
        assertEquals(PartitionKeyDefinitionVersion.V2, shown.getVersion());
        assertEquals(List.of("/tenant", "/user", "/session"), shown.getPaths());
    }

    @Test
    @DisplayName("container-unique-keys-shown")
    void uniqueKeysShown() {
        UniqueKeyPolicy policy = new UniqueKeyPolicy().setUniqueKeys(List.of(
                new UniqueKey(List.of("/email")), new UniqueKey(List.of("/name/first", "/name/last"))));
        CosmosContainer container = container(properties -> properties.setUniqueKeyPolicy(policy));
        List<List<String>> shown = container.read().getProperties().getUniqueKeyPolicy().getUniqueKeys().stream()
                .map(UniqueKey::getPaths)
                .toList();
        assertEquals(List.of(List.of("/email"), List.of("/name/first", "/name/last")), shown);
    }

    @Test
    @DisplayName("container-manual-throughput")
    void manualThroughput() {
        CosmosContainer container = withThroughput(ThroughputProperties.createManualThroughput(600));
        assertEquals(600, container.readThroughput().getProperties().getManualThroughput());
        int status = container.replaceThroughput(ThroughputProperties.createManualThroughput(800)).getStatusCode();
        assertEquals(200, status);
        ThroughputProperties shown = container.readThroughput().getProperties();
        assertEquals(800, shown.getManualThroughput());
        assertEquals(0, shown.getAutoscaleMaxThroughput());
    }

    @Test
    @DisplayName("container-autoscale-throughput")
    void autoscaleThroughput() {
        CosmosContainer container = withThroughput(ThroughputProperties.createAutoscaledThroughput(4000));
        assertEquals(4000, container.readThroughput().getProperties().getAutoscaleMaxThroughput());
        int status = container.replaceThroughput(ThroughputProperties.createAutoscaledThroughput(5000)).getStatusCode();
        assertEquals(200, status);
        assertEquals(5000, container.readThroughput().getProperties().getAutoscaleMaxThroughput());
    }

    private CosmosContainer withThroughput(ThroughputProperties throughput) {
        CosmosDatabase database = database();
        CosmosContainerProperties properties = new CosmosContainerProperties(unique("items"), "/pk");
        assertEquals(201, database.createContainer(properties, throughput).getStatusCode());
        return database.getContainer(properties.getId());
    }

    @Test
    @DisplayName("container-feed-ranges")
    void feedRanges() {
        List<FeedRanges.Bounds> ranges = FeedRanges.of(container());
        assertTrue(ranges.size() > 1, () -> "several ranges: " + ranges);
        FeedRanges.coverEverything(ranges);
    }
}
