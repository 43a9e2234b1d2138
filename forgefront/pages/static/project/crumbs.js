// The breadcrumbs of the pages of a project.

import { address } from "../address.js";

/** A group and a project, and the `sections` of the project that are above the page: [[name, address], …]. `project` has its `namespace`. */
export function projectCrumbs({ namespace, name, fullPath }, ...sections) {
  const above = namespace.kind === "GROUP" ? address("groups", namespace.path) : address("u", namespace.path);
  return [[namespace.name, above], [name, address(fullPath)], ...sections];
}
