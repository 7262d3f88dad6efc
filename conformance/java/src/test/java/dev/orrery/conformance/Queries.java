package dev.orrery.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.cosmos.models.FeedResponse;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.IntSummaryStatistics;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Queries over eight partitions, all of which split between two pages. */
class Queries extends Scene {
    private Catalogue catalogue() throws Exception {
        return new Catalogue(database());
    }

    private static List<ObjectNode> numbers(IntStream range) {
        return range.mapToObj(n -> item("{'n':" + n + "}")).toList();
    }

    private static IntStream down(int from, int to) {
        return IntStream.rangeClosed(to, from).map(n -> from + to - n);
    }

    @Test
    @DisplayName("query-scan")
    void scan() throws Exception {
        catalogue().expectInAnyOrder("SELECT c.n FROM c", 10, numbers(IntStream.range(0, Catalogue.N_ITEMS)));
    }

    @Test
    @DisplayName("query-order-by")
    void orderBy() throws Exception {
        Catalogue catalogue = catalogue();
        catalogue.expect("SELECT c.n FROM c ORDER BY c.n", 10, numbers(IntStream.range(0, Catalogue.N_ITEMS)));
        catalogue.expect("SELECT c.n FROM c WHERE c.n < 50 ORDER BY c.n DESC", 10, numbers(down(49, 0)));
    }

    /** Sorted by tie, and every item once. */
    private static void completeByTie(Catalogue catalogue, List<ObjectNode> rows) {
        List<Integer> ties = rows.stream().map(row -> row.get("tie").asInt()).toList();
        assertEquals(ties.stream().sorted().toList(), ties);
        assertEquals(Catalogue.byText(pairs(catalogue.items)), Catalogue.byText(rows));
    }

    private static List<ObjectNode> pairs(List<ObjectNode> items) {
        return items.stream().map(row -> item("{'tie':" + row.get("tie") + ",'n':" + row.get("n") + "}")).toList();
    }

    @Test
    @DisplayName("query-order-by-ties")
    void orderByTies() throws Exception {
        Catalogue catalogue = catalogue();
        catalogue.look("SELECT c.tie, c.n FROM c ORDER BY c.tie", 7, rows -> completeByTie(catalogue, rows));
    }

    @Test
    @DisplayName("query-order-by-two")
    void orderByTwo() throws Exception {
        Catalogue catalogue = catalogue();
        Comparator<ObjectNode> byTie = Comparator.comparingInt(row -> row.get("tie").asInt());
        List<ObjectNode> expected = pairs(catalogue.items).stream()
                .sorted(byTie.thenComparingInt(row -> -row.get("n").asInt()))
                .toList();
        catalogue.expect("SELECT c.tie, c.n FROM c ORDER BY c.tie ASC, c.n DESC", 10, expected);
    }

    /** Where a value stands among those of all kinds, as text that sorts like it. */
    private static String place(ObjectNode row) {
        JsonNode value = row.get("mixed");
        if (value == null) {
            return "0";
        }
        return switch (value.getNodeType()) {
            case NULL -> "1";
            case BOOLEAN -> "2 " + value;
            case NUMBER -> "3 %05d".formatted(value.asInt());
            default -> "4 " + value;
        };
    }

    @Test
    @DisplayName("query-order-by-types")
    void orderByTypes() throws Exception {
        Catalogue catalogue = catalogue();
        List<String> expected = catalogue.items.stream().map(Queries::place).sorted().toList();
        catalogue.look("SELECT c.n, c.mixed FROM c ORDER BY c.mixed", 10,
                rows -> assertEquals(expected, rows.stream().map(Queries::place).toList()));
    }

    @Test
    @DisplayName("query-top")
    void top() throws Exception {
        catalogue().expect("SELECT TOP 25 c.n FROM c ORDER BY c.n DESC", 10, numbers(down(119, 95)));
    }

    @Test
    @DisplayName("query-offset-limit")
    void offsetLimit() throws Exception {
        Catalogue catalogue = catalogue();
        catalogue.expect("SELECT c.n FROM c ORDER BY c.n OFFSET 15 LIMIT 30", 10, numbers(IntStream.range(15, 45)));
        catalogue.look("SELECT c.n FROM c OFFSET 5 LIMIT 50", 10, rows -> {
            assertEquals(50, rows.size());
            assertEquals(50, new HashSet<>(rows).size());
        });
    }

    @Test
    @DisplayName("query-distinct")
    void distinct() throws Exception {
        Catalogue catalogue = catalogue();
        List<ObjectNode> families = new ArrayList<>();
        List<ObjectNode> pairs = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            families.add(item("{'family':'family " + number + "'}"));
            for (int tie = 0; tie < 4; tie++) {
                pairs.add(item("{'tie':" + tie + ",'family':'family " + number + "'}"));
            }
        }
        catalogue.expectInAnyOrder("SELECT DISTINCT c.tie, c.family FROM c", 6, pairs);
        catalogue.expect("SELECT DISTINCT c.family FROM c ORDER BY c.family", 2, families);
    }

    @Test
    @DisplayName("query-aggregates")
    void aggregates() throws Exception {
        Catalogue catalogue = catalogue();
        Map<String, String> aggregates = Map.of(
                "COUNT(1)", "120", "SUM(c.n)", "7140", "AVG(c.n)", "59.5", "MIN(c.n)", "0", "MAX(c.n)", "119");
        String both = "SELECT COUNT(1) AS total, MAX(c.n) AS most FROM c WHERE c.n < 50";
        for (String phase : List.of("before", "after")) {
            if (phase.equals("after")) {
                catalogue.split();
            }
            aggregates.forEach((aggregate, expected) -> {
                String query = "SELECT " + aggregate + " AS it FROM c";
                List<ObjectNode> rows = catalogue.rows(query, 10);
                assertEquals(1, rows.size(), query);
                assertEquals(Double.parseDouble(expected), rows.get(0).get("it").asDouble(), query + " " + phase);
                assertEquals(List.of(Double.valueOf(expected)), catalogue.values("SELECT VALUE " + aggregate + " FROM c"));
            });
            assertEquals(
                    Catalogue.byText(List.of(item("{'total':50,'most':49}"))),
                    Catalogue.byText(catalogue.rows(both, 10)),
                    phase);
        }
    }

    private static ObjectNode summary(Catalogue catalogue, String family) {
        IntSummaryStatistics members = catalogue.items.stream()
                .filter(item -> item.get("family").asText().equals(family))
                .mapToInt(item -> item.get("n").asInt())
                .summaryStatistics();
        return item("{}").put("family", family)
                .put("size", members.getCount())
                .put("total", members.getSum())
                .put("mean", members.getAverage())
                .put("least", members.getMin())
                .put("most", members.getMax());
    }

    @Test
    @DisplayName("query-group-by")
    void groupBy() throws Exception {
        Catalogue catalogue = catalogue();
        String query = "SELECT c.family, COUNT(1) AS size, SUM(c.n) AS total, AVG(c.n) AS mean, "
                + "MIN(c.n) AS least, MAX(c.n) AS most FROM c GROUP BY c.family";
        List<ObjectNode> expected = IntStream.range(0, 5).mapToObj(n -> summary(catalogue, "family " + n)).toList();
        catalogue.expectInAnyOrder(query, 2, expected);
    }

    @Test
    @DisplayName("query-vector")
    void vector() throws Exception {
        String query = "SELECT TOP 10 c.id FROM c ORDER BY VectorDistance(c.vector, [2000, 1])";
        catalogue().expect(query, 4, Catalogue.ranked(3, 6, 9, 1, 4, 7, 10, 2, 5, 8));
    }

    @Test
    @DisplayName("query-full-text")
    void fullText() throws Exception {
        String query = "SELECT TOP 10 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'comet')";
        catalogue().expect(query, 4, Catalogue.ranked(10, 9, 8, 7, 6, 5, 4, 3, 2, 1));
    }

    @Test
    @DisplayName("query-hybrid")
    void hybrid() throws Exception {
        String query = "SELECT TOP 10 c.id FROM c "
                + "ORDER BY RANK RRF(FullTextScore(c.text, 'comet'), VectorDistance(c.vector, [2000, 1]))";
        catalogue().expect(query, 4, Catalogue.ranked(9, 6, 10, 3, 7, 4, 8, 1, 5, 2));
    }

    @Test
    @DisplayName("query-resume-after-split")
    void resumeAfterSplit() throws Exception {
        Catalogue catalogue = catalogue();
        String query = "SELECT c.n FROM c ORDER BY c.n";
        FeedResponse<ObjectNode> first = catalogue.pages(query, null, 25).iterator().next();
        assertEquals(25, first.getResults().size());
        catalogue.split();
        List<ObjectNode> rows = new ArrayList<>(first.getResults());
        catalogue.pages(query, first.getContinuationToken(), 25).forEach(page -> rows.addAll(page.getResults()));
        assertEquals(numbers(IntStream.range(0, Catalogue.N_ITEMS)), rows);
    }
}
