package dev.orrery.conformance;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosAsyncDatabase;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import java.io.PrintStream;
import java.time.Duration;
import reactor.core.scheduler.Schedulers;

/** A processor host of all versions in a process of its own, so that it can be killed. Prints a line per change. */
final class ProcessorHost {
    private ProcessorHost() {}

    /** Database, monitored container, lease container, name of the host. */
    public static void main(String[] arguments) throws Exception {
        CosmosAsyncDatabase database = Server.ASYNC_CLIENT.getDatabase(arguments[0]);
        CosmosAsyncContainer feed = database.getContainer(arguments[1]);
        CosmosAsyncContainer leases = database.getContainer(arguments[2]);
        PrintStream out = System.out;
        ChangeFeedProcessor processor = new ChangeFeedProcessorBuilder()
                .hostName(arguments[3])
                .feedContainer(feed)
                .leaseContainer(leases)
                .handleAllVersionsAndDeletesChanges((changes, context) -> {
                    for (ChangeFeedProcessorItem change : changes) {
                        out.println(line(context.getLeaseToken(), change));
                    }
                    out.flush();
                })
                .options(new ChangeFeedProcessorOptions()
                        .setFeedPollDelay(Duration.ofMillis(100))
                        .setLeaseAcquireInterval(Duration.ofMillis(700))
                        .setLeaseRenewInterval(Duration.ofMillis(500))
                        .setLeaseExpirationInterval(Duration.ofMillis(2500))
                        .setMaxItemCount(10)
                        .setScheduler(Schedulers.boundedElastic()))
                .buildChangeFeedProcessor();
        processor.start().block();
        out.println("started");
        // Until the parent closes the pipe or kills this process.
        while (System.in.read() >= 0) {}
        processor.stop().block();
        System.exit(0);
    }

    private static String line(String lease, ChangeFeedProcessorItem change) {
        boolean isDelete = change.getChangeFeedMetaData().getOperationType().toString().equalsIgnoreCase("delete");
        String key = isDelete ? "-" : change.getCurrent().get("pk").asText();
        String n = isDelete ? "-1" : change.getCurrent().get("n").asText();
        long lsn = change.getChangeFeedMetaData().getLogSequenceNumber();
        return String.join("\t", "change", lease, Long.toString(lsn), key, n);
    }
}
