package dev.orrery.conformance;

import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What the SDK cannot express, with the reason that goes into the table. */
class Unsupported {
    @Test
    @DisplayName("account-read")
    @Disabled("the SDK has no call that gives the account")
    void accountRead() {}

    @Test
    @DisplayName("database-name-invalid-is-400")
    @Disabled("the SDK refuses such a name itself")
    void databaseNameInvalid() {}

    @Test
    @DisplayName("throughput-manual-to-autoscale")
    @Disabled("the SDK does not send the header that asks for the other mode")
    void manualToAutoscale() {}

    @Test
    @DisplayName("throughput-autoscale-to-manual")
    @Disabled("the SDK does not send the header that asks for the other mode")
    void autoscaleToManual() {}

    @Test
    @DisplayName("query-resume-ties-after-split")
    @Disabled("the SDK forgets across a split which rows of equal sort values it has given")
    void resumeTiesAfterSplit() {}

    @Test
    @DisplayName("feed-other-mode-continuation")
    @Disabled("the SDK does not compare the mode of a continuation with that of the call")
    void otherMode() {}

    @Test
    @DisplayName("feed-foreign-continuation")
    @Disabled("the SDK does not compare the container of a continuation with the one it reads")
    void foreignContinuation() {}

    @Test
    @DisplayName("region-found-by-name")
    @Disabled("the SDK resolves names by the machine's resolver only")
    void foundByName() {}
}
