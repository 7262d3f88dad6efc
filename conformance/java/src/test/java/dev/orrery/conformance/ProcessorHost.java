package dev.orrery.conformance;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosAsyncDatabase;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import reactor.core.scheduler.Schedulers;

/** A processor host in a process of its own, so that it can be killed. Prints a line per change. */
final class ProcessorHost {
    private ProcessorHost() {}

    /** Database, monitored container, lease container, name of the host, and {@code all} or {@code latest} versions. */
    public static void main(String[] arguments) throws Exception {
        CosmosAsyncDatabase database = Server.ASYNC_CLIENT.getDatabase(arguments[0]);
        CosmosAsyncContainer feed = database.getContainer(arguments[1]);
        CosmosAsyncContainer leases = database.getContainer(arguments[2]);
        PrintStream out = System.out;
        ChangeFeedProcessorBuilder builder = new ChangeFeedProcessorBuilder()
                .hostName(arguments[3])
                .feedContainer(feed)
                .leaseContainer(leases);
        boolean isAll = arguments[4].equals("all");
        if (isAll) {
            builder.handleAllVersionsAndDeletesChanges((changes, context) -> print(out, context.getLeaseToken(), changes));
        } else {
            builder.handleLatestVersionChanges(changes -> print(out, "-", changes));
        }
        ChangeFeedProcessor processor = builder.options(new ChangeFeedProcessorOptions()
                        .setFeedPollDelay(Duration.ofMillis(100))
                        .setLeaseAcquireInterval(Duration.ofMillis(700))
                        .setLeaseRenewInterval(Duration.ofMillis(500))
                        .setLeaseExpirationInterval(Duration.ofMillis(2500))
                        .setMaxItemCount(10)
                        .setStartFromBeginning(!isAll)
                        .setScheduler(Schedulers.boundedElastic()))
                .buildChangeFeedProcessor();
        processor.start().block();
        out.println("started");
        // Until the parent closes the pipe or kills this process.
        while (System.in.read() >= 0) {}
        processor.stop().block();
        System.exit(0);
    }

    private static void print(PrintStream out, String lease, List<ChangeFeedProcessorItem> changes) {
        changes.forEach(change -> out.println(line(lease, change)));
        out.flush();
    }

    private static String line(String lease, ChangeFeedProcessorItem change) {
        // An item of latest versions has a body always, and need not say what happened to it.
        boolean isDelete = change.getCurrent() == null || change.getCurrent().isEmpty();
        String key = isDelete ? "-" : change.getCurrent().get("pk").asText();
        String n = isDelete ? "-1" : change.getCurrent().get("n").asText();
        long lsn = change.getChangeFeedMetaData() == null ? 0 : change.getChangeFeedMetaData().getLogSequenceNumber();
        return String.join("\t", "change", lease, Long.toString(lsn), key, n);
    }
}
