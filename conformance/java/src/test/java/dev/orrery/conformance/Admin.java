package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** The few administration requests that the tests need, signed with an empty resource type and the path as the link. */
final class Admin {
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final ObjectMapper JSON = new ObjectMapper();
    // The JDK's own format writes days of one digit, which HTTP does not.
    private static final DateTimeFormatter HTTP_DATE =
            DateTimeFormatter.ofPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.US);

    private Admin() {}

    /** From left to right. */
    static List<Integer> partitions(CosmosDatabase database, CosmosContainer container) throws Exception {
        String query = "?database=" + encode(database.getId()) + "&container=" + encode(container.getId());
        List<JsonNode> partitions = new ArrayList<>();
        send("GET", "_orrery/v1/partitions", query, "").get("partitions").forEach(partitions::add);
        partitions.sort(Comparator.comparing(entry -> entry.get("minInclusive").asText()));
        return partitions.stream().map(entry -> entry.get("partition").asInt()).toList();
    }

    /** Returns when the split is over. */
    static void split(CosmosDatabase database, CosmosContainer container, int partition) throws Exception {
        Map<String, Object> form =
                Map.of("database", database.getId(), "container", container.getId(), "partition", partition);
        send("POST", "_orrery/v1/partitions/split", "", JSON.writeValueAsString(form));
    }

    /** Returns when the neighbours are one. */
    static void merge(CosmosDatabase database, CosmosContainer container, int left, int right) throws Exception {
        Map<String, Object> form = Map.of(
                "database", database.getId(), "container", container.getId(), "partitions", List.of(left, right));
        send("POST", "_orrery/v1/partitions/merge", "", JSON.writeValueAsString(form));
    }

    /** The new secondary key; the one before is worth nothing from now on. */
    static String rotateSecondaryKey() throws Exception {
        return send("POST", "_orrery/v1/keys/secondary/rotate", "", "").get("key").asText();
    }

    private static JsonNode send(String verb, String path, String query, String body) throws Exception {
        return send(Server.ENDPOINT, verb, path, query, body);
    }

    static JsonNode send(String server, String verb, String path, String query, String body) throws Exception {
        String date = HTTP_DATE.format(ZonedDateTime.now(ZoneOffset.UTC));
        HttpRequest request = HttpRequest.newBuilder(URI.create(server + path + query))
                .version(HttpClient.Version.HTTP_1_1)
                .header("authorization", encode("type=master&ver=1.0&sig=" + signature(verb, path, date)))
                .header("x-ms-date", date)
                .header("x-ms-version", "2020-07-15")
                .method(verb, BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> response = HTTP.send(request, BodyHandlers.ofString());
        assertEquals(200, response.statusCode(), response::body);
        return JSON.readTree(response.body());
    }

    private static String signature(String verb, String path, String date) throws Exception {
        String lowerVerb = verb.toLowerCase(Locale.ROOT);
        String text = lowerVerb + "\n\n" + path + "\n" + date.toLowerCase(Locale.ROOT) + "\n\n";
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(Base64.getDecoder().decode(Server.KEY), "HmacSHA256"));
        return Base64.getEncoder().encodeToString(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
    }

    private static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }
}
