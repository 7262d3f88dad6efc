package conformance

// unsupported names what the SDK cannot express, with the reason that goes into the table.
var unsupported = map[string]string{
	"account-read":                    "the SDK has no call that gives the account",
	"database-create-if-not-exists":   "the SDK has no such call",
	"item-missing-key":                "the SDK has no none key; an empty one is not sent at all",
	"item-read-not-modified":          "the options of an item read have no if-none-match",
	"patch-move":                      "the SDK has no move operation",
	"bulk-many-items":                 "the SDK has no bulk call",
	"delete-by-partition-key":         "the SDK has no such call",
	"user-create-read-replace-delete": "the SDK has no users",
	"permission-create-read-delete":   "the SDK has no permissions",
	"permission-token-reads":          "the SDK takes no resource tokens",
	"permission-token-cannot-write":   "the SDK takes no resource tokens",
	"feed-from-now":                   "the SDK starts from the beginning or from a time",
	"feed-logical-key":                "the SDK wants the feed range that holds the key and does not tell which one does",
	"feed-all-versions":               "the SDK reads latest versions only",
	"region-conflict-feed":            "the SDK has no conflicts",
	"processor-latest-versions":       "the SDK has no change feed processor",
	"processor-all-versions":          "the SDK has no change feed processor",
	"processor-all-versions-killed":   "the SDK has no change feed processor",
}
