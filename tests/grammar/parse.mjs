// Reads a JSON list of [language, query]; prints a JSON list with each query's tree: a node's name (an error's is "⚠"),
// the text that it covers, and its children.
import { readFileSync } from "node:fs";
import { parser as traceql } from "@grafana/lezer-traceql";
import { parser as logql } from "@grafana/lezer-logql";

const parsers = { traceql, logql };

function tree(node, query) {
  const children = [];
  for (let child = node.firstChild; child; child = child.nextSibling) children.push(tree(child, query));
  return [node.type.isError ? "⚠" : node.name, query.slice(node.from, node.to), children];
}

const answers = JSON.parse(readFileSync(0, "utf8")).map(([language, query]) =>
  tree(parsers[language].parse(query).topNode, query),
);
process.stdout.write(JSON.stringify(answers));
