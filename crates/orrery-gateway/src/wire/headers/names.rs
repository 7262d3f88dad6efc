//! The spelling of every header this server reads or writes.

use http::HeaderName;

macro_rules! names {
    ($($(#[$doc:meta])* $constant:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $constant: HeaderName = HeaderName::from_static($text);)*
    };
}

pub use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    WWW_AUTHENTICATE,
};

// Every request.
names! {
    ACTIVITY_ID = "x-ms-activity-id";
    X_MS_DATE = "x-ms-date";
    CONSISTENCY_LEVEL = "x-ms-consistency-level";
    READ_CONSISTENCY_STRATEGY = "x-ms-cosmos-read-consistency-strategy";
    INTENDED_CONTAINER = "x-ms-cosmos-intended-collection-rid";
    /// Only the region that takes writes may answer.
    HUB_ONLY = "x-ms-cosmos-hub-region-processing-only";
    INDEXING_DIRECTIVE = "x-ms-indexing-directive";
    /// Both ways.
    SESSION_TOKEN = "x-ms-session-token";
}

// Where a request goes.
names! {
    PARTITION_KEY = "x-ms-documentdb-partitionkey";
    /// Both ways.
    PARTITION_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid";
    START_EPK = "x-ms-start-epk";
    END_EPK = "x-ms-end-epk";
    READ_KEY_TYPE = "x-ms-read-key-type";
}

// Items and batches.
names! {
    PREFER = "prefer";
    EXPIRY_SECONDS = "x-ms-documentdb-expiry-seconds";
    IS_UPSERT = "x-ms-documentdb-is-upsert";
    IS_BATCH = "x-ms-cosmos-is-batch-request";
    BATCH_ATOMIC = "x-ms-cosmos-batch-atomic";
    BATCH_CONTINUE_ON_ERROR = "x-ms-cosmos-batch-continue-on-error";
    PRE_TRIGGER_INCLUDE = "x-ms-documentdb-pre-trigger-include";
    POST_TRIGGER_INCLUDE = "x-ms-documentdb-post-trigger-include";
}

// Feeds and queries.
names! {
    MAX_ITEM_COUNT = "x-ms-max-item-count";
    /// Both ways.
    CONTINUATION = "x-ms-continuation";
    CONTINUATION_LIMIT_KIB = "x-ms-documentdb-responsecontinuationtokenlimitinkb";
    A_IM = "a-im";
    CHANGE_FEED_WIRE_FORMAT = "x-ms-cosmos-changefeed-wire-format-version";
    SDK_CAPABILITIES = "x-ms-cosmos-sdk-supportedcapabilities";
    IS_QUERY = "x-ms-documentdb-isquery";
    IS_QUERY_LEGACY = "x-ms-documentdb-query";
    IS_QUERY_PLAN = "x-ms-cosmos-is-query-plan-request";
    SUPPORTED_QUERY_FEATURES = "x-ms-cosmos-supported-query-features";
    CROSS_PARTITION = "x-ms-documentdb-query-enablecrosspartition";
    POPULATE_QUERY_METRICS = "x-ms-documentdb-populatequerymetrics";
    POPULATE_INDEX_METRICS = "x-ms-cosmos-populateindexmetrics";
    POPULATE_INDEX_METRICS_V2 = "x-ms-cosmos-populateindexmetrics-v2";
}

// Which user somewhere in the world a client stands for, where distances are simulated.
names! {
    CLIENT = "x-orrery-client";
}

// Change feeds, beyond what the service offers.
names! {
    FEED_COMMITTED = "x-orrery-feed-committed";
    FEED_FILTER = "x-orrery-feed-filter";
    FEED_WAIT_MS = "x-orrery-feed-wait-ms";
    FEED_FROM_HISTORY = "x-orrery-feed-from-history";
    FEED_FACTS_ONLY = "x-orrery-feed-facts-only";
    HEAD_LSN = "x-orrery-head-lsn";
    HEAD_TIME_MS = "x-orrery-head-time-ms";
}

// Databases, containers and offers.
names! {
    OFFER_THROUGHPUT = "x-ms-offer-throughput";
    OFFER_AUTOPILOT = "x-ms-cosmos-offer-autopilot-settings";
    MIGRATE_TO_AUTOPILOT = "x-ms-cosmos-migrate-offer-to-autopilot";
    MIGRATE_TO_MANUAL = "x-ms-cosmos-migrate-offer-to-manual-throughput";
    POPULATE_QUOTA = "x-ms-documentdb-populatequotainfo";
}

// Every answer.
names! {
    REQUEST_CHARGE = "x-ms-request-charge";
    REQUEST_DURATION = "x-ms-request-duration-ms";
    SUBSTATUS = "x-ms-substatus";
    RETRY_AFTER_MS = "x-ms-retry-after-ms";
    SCHEMA_VERSION = "x-ms-schemaversion";
    SERVICE_VERSION = "x-ms-serviceversion";
    GATEWAY_VERSION = "x-ms-gatewayversion";
}

// Answers about a container or a physical partition.
names! {
    ALT_CONTENT_PATH = "x-ms-alt-content-path";
    CONTENT_PATH = "x-ms-content-path";
    INTERNAL_PARTITION_ID = "x-ms-cosmos-internal-partition-id";
    LSN = "lsn";
    ITEM_LSN = "x-ms-item-lsn";
    LOCAL_LSN = "x-ms-cosmos-llsn";
    ITEM_LOCAL_LSN = "x-ms-cosmos-item-llsn";
    QUORUM_ACKED_LSN = "x-ms-quorum-acked-lsn";
    QUORUM_ACKED_LOCAL_LSN = "x-ms-cosmos-quorum-acked-llsn";
    GLOBAL_COMMITTED_LSN = "x-ms-global-committed-lsn";
    LAST_STATE_CHANGE = "x-ms-last-state-change-utc";
    NUMBER_OF_READ_REGIONS = "x-ms-number-of-read-regions";
}

// Answers of one kind.
names! {
    ITEM_COUNT = "x-ms-item-count";
    QUERY_EXECUTION_INFO = "x-ms-cosmos-query-execution-info";
    QUERY_METRICS = "x-ms-documentdb-query-metrics";
    INDEX_UTILIZATION = "x-ms-cosmos-index-utilization";
    INDEX_PROGRESS = "x-ms-documentdb-collection-index-transformation-progress";
    RESOURCE_QUOTA = "x-ms-resource-quota";
    RESOURCE_USAGE = "x-ms-resource-usage";
    MIN_THROUGHPUT = "x-ms-cosmos-min-throughput";
    OFFER_REPLACE_PENDING = "x-ms-offer-replace-pending";
}
