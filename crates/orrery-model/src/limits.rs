//! Every limit a client can run into, in one place.

/// Deepest nesting of an item.
pub const NESTING_LEVELS_MAX: usize = 128;
/// Levels that an envelope may put around an item or a value of one: a batch, an operation of it, and a patch in that.
pub const ENVELOPE_LEVELS_MAX: usize = 5;
/// Largest item, as canonical text.
pub const ITEM_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Largest logical partition: all items of one key.
pub const LOGICAL_PARTITION_BYTES_MAX: u64 = 20 << 30;
/// Largest batch, all its operations together.
pub const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// What the operations of one batch may write and give back, all together. Operations that name an item can give or write far
/// more than the request holds.
pub const BATCH_RESULT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest request body: an item with its blanks.
pub const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest item id in bytes.
pub const ITEM_ID_BYTES_MAX: usize = 1023;
/// Longest name of a database, container, user or permission, in characters.
pub const NAME_CHARACTERS_MAX: usize = 255;
/// Longest partition key value in bytes (a string component).
pub const PARTITION_KEY_BYTES_MAX: usize = 2048;
/// Operations of one batch.
pub const BATCH_OPERATIONS_MAX: usize = 100;
/// Operations of one patch.
pub const PATCH_OPERATIONS_MAX: usize = 10;
/// Paths of a partition key.
pub const KEY_PATHS_MAX: usize = 3;
/// Unique key constraints of one container, and paths of one constraint.
pub const UNIQUE_KEYS_MAX: usize = 10;
pub const UNIQUE_KEY_PATHS_MAX: usize = 16;
/// Physical partitions that ever existed in one container: their number has 16 bits in item ids.
pub const PARTITIONS_MAX: u32 = 1 << 16;
/// Computed properties of one container.
pub const COMPUTED_PROPERTIES_MAX: usize = 20;
/// Members of any one object in a container definition.
pub const DEFINITION_MEMBERS_MAX: usize = 1000;
