// A reporter for Node's test runner that writes the results file: one entry per scenario, named after its test.

import { createRequire } from "node:module";

const { version } = createRequire(import.meta.url)("@azure/cosmos/package.json");

export default async function* results(events) {
  const seen = {};
  for await (const { type, data } of events) {
    const isScenario = data?.nesting === 0 && data.name && !data.name.endsWith(".js");
    if (type === "test:pass" && isScenario) {
      seen[data.name] ??= data.skip ? `skip: ${data.skip}` : "pass";
    } else if (type === "test:fail" && isScenario) {
      seen[data.name] = `fail: ${reason(data.details.error)}`;
    } else if (type === "test:fail") {
      console.error(`${data.name}: ${reason(data.details.error)}`);
    }
  }
  yield JSON.stringify({ language: "javascript", sdk: "@azure/cosmos", version, results: seen }, null, 1);
}

function reason(error) {
  const cause = error.cause ?? error;
  const where = /tests\/[\w.]+:\d+/.exec(cause.stack ?? "")?.[0] ?? "";
  // What was thrown need not be an error, nor have a text.
  const text = `${cause.body?.message ?? cause.message ?? JSON.stringify(cause)}`.split("\n")[0].trim();
  return `${text} ${cause.code ?? ""} ${where}`.slice(0, 300).trim();
}
