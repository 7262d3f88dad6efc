package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.FeedRange;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;

/** The bounds inside feed ranges, whose text is JSON in base 64. */
final class FeedRanges {
    record Bounds(String min, String max) {}

    private FeedRanges() {}

    static List<Bounds> of(CosmosContainer container) {
        return container.getFeedRanges().stream()
                .map(FeedRanges::bounds)
                .sorted(Comparator.comparing(Bounds::min))
                .toList();
    }

    private static Bounds bounds(FeedRange range) {
        try {
            JsonNode json = new ObjectMapper().readTree(new String(Base64.getDecoder().decode(range.toString())));
            JsonNode bounds = json.get("Range");
            return new Bounds(bounds.get("min").asText(), bounds.get("max").asText());
        } catch (JsonProcessingException exception) {
            throw new IllegalArgumentException(range.toString(), exception);
        }
    }

    static void coverEverything(List<Bounds> ranges) {
        String end = "";
        for (Bounds next : ranges) {
            assertEquals(end, next.min());
            end = next.max();
        }
        assertEquals("FF", end);
    }
}
