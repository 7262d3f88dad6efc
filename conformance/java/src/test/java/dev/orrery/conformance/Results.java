package dev.orrery.conformance;

import com.azure.cosmos.CosmosException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;

/** Writes what each test came to, under its display name, into the file that ORRERY_RESULTS names. */
public final class Results implements TestExecutionListener {
    private static final int REASON_LENGTH_MAX = 500;

    private final Map<String, String> outcomes = new ConcurrentSkipListMap<>();

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        if (test.isTest()) {
            outcomes.put(test.getDisplayName(), "skip: " + reason);
        }
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (test.isTest()) {
            outcomes.put(test.getDisplayName(), result.getThrowable().map(Results::failure).orElse("pass"));
        }
    }

    private static String failure(Throwable thrown) {
        String reason = inShort(thrown).replaceAll("\\s+", " ");
        return "fail: " + reason.substring(0, Math.min(reason.length(), REASON_LENGTH_MAX));
    }

    /** An uncaught refusal shows pages of diagnostics that differ from run to run; its first line says why. */
    private static String inShort(Throwable thrown) {
        if (thrown instanceof CosmosException refusal) {
            String message = String.valueOf(refusal.getShortMessage());
            return refusal.getStatusCode() + " " + message.lines().findFirst().orElse("");
        }
        return thrown.toString();
    }

    @Override
    public void testPlanExecutionFinished(TestPlan plan) {
        String path = System.getenv("ORRERY_RESULTS");
        // Maven's forked process may run plans without tests; they have nothing to say.
        if (path == null || outcomes.isEmpty()) {
            return;
        }
        Map<String, Object> report = Map.of(
                "language", "java",
                "sdk", "azure-cosmos",
                "version", System.getProperty("azure-cosmos.version"),
                "results", outcomes);
        try {
            Files.writeString(Path.of(path), new ObjectMapper().writeValueAsString(report));
        } catch (IOException exception) {
            throw new UncheckedIOException(exception);
        }
    }
}
