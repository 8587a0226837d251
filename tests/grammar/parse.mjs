// Reads a JSON list of [language, query]; prints a JSON list with each query's errors: where the grammar does not fit.
import { readFileSync } from "node:fs";
import { parser as traceql } from "@grafana/lezer-traceql";
import { parser as logql } from "@grafana/lezer-logql";

const parsers = { traceql, logql };

const answers = JSON.parse(readFileSync(0, "utf8")).map(([language, query]) => {
  const errors = [];
  const tree = parsers[language].parse(query);
  tree.iterate({
    enter: (node) => {
      if (node.type.isError) errors.push(`${node.from}: ${query.slice(node.from, node.to + 20)}`);
    },
  });
  return errors;
});
process.stdout.write(JSON.stringify(answers));
