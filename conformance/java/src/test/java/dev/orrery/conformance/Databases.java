package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosDatabaseProperties;
import com.azure.cosmos.models.CosmosDatabaseResponse;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.util.CosmosPagedIterable;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class Databases extends Scene {
    @Test
    @DisplayName("database-create-read-delete")
    void createReadDelete() {
        CosmosDatabase database = database();
        CosmosDatabaseResponse read = database.read();
        assertEquals(200, read.getStatusCode());
        CosmosDatabaseProperties shown = read.getProperties();
        assertEquals(database.getId(), shown.getId());
        assertFalse(shown.getResourceId().isEmpty());
        assertEquals(read.getResponseHeaders().get("etag"), shown.getETag());
        assertNotNull(shown.getTimestamp());
        assertEquals(204, database.delete().getStatusCode());
        refused(404, database::read);
    }

    @Test
    @DisplayName("database-create-twice-is-409")
    void createTwice() {
        String id = database().getId();
        refused(409, () -> Server.CLIENT.createDatabase(id));
    }

    @Test
    @DisplayName("database-missing-is-404")
    void missing() {
        CosmosDatabase database = Server.CLIENT.getDatabase(unique("missing"));
        refused(404, database::read);
        refused(404, database::delete);
    }

    @Test
    @DisplayName("database-create-if-not-exists")
    void createIfNotExists() {
        String id = unique("db");
        owned(Server.CLIENT.getDatabase(id));
        CosmosDatabaseResponse created = Server.CLIENT.createDatabaseIfNotExists(id);
        assertEquals(201, created.getStatusCode());
        CosmosDatabaseResponse found = Server.CLIENT.createDatabaseIfNotExists(id);
        assertEquals(200, found.getStatusCode());
        assertEquals(created.getProperties().getResourceId(), found.getProperties().getResourceId());
    }

    @Test
    @DisplayName("database-list")
    void list() {
        String first = database().getId();
        String second = database().getId();
        List<String> listed = ids(Server.CLIENT.readAllDatabases());
        assertEquals(1, Collections.frequency(listed, first));
        assertEquals(1, Collections.frequency(listed, second));
    }

    @Test
    @DisplayName("database-query-by-id")
    void queryById() {
        String wanted = database().getId();
        String other = database().getId();
        SqlQuerySpec parametrized =
                new SqlQuerySpec("SELECT * FROM d WHERE d.id = @id", List.of(new SqlParameter("@id", wanted)));
        CosmosQueryRequestOptions options = new CosmosQueryRequestOptions();
        assertEquals(List.of(wanted), ids(Server.CLIENT.queryDatabases(parametrized, options)));
        String literal = "SELECT * FROM d WHERE d.id = '" + other + "'";
        assertEquals(List.of(other), ids(Server.CLIENT.queryDatabases(literal, options)));
    }

    private static List<String> ids(CosmosPagedIterable<CosmosDatabaseProperties> databases) {
        return databases.stream().map(CosmosDatabaseProperties::getId).toList();
    }

    @Test
    @DisplayName("database-shared-throughput")
    void sharedThroughput() {
        String id = unique("db");
        CosmosDatabase database = owned(Server.CLIENT.getDatabase(id));
        Server.CLIENT.createDatabase(id, ThroughputProperties.createManualThroughput(500));
        assertEquals(500, database.readThroughput().getProperties().getManualThroughput());
    }
}
