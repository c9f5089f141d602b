// The difference of two JSON values, by paths.

const isTree = (value) => value !== null && typeof value === "object";

/** [{path, before, after}]: undefined where a side has nothing. */
export function difference(before, after, path = "", found = []) {
  if (isTree(before) && isTree(after) && Array.isArray(before) === Array.isArray(after)) {
    const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
    const own = (tree, key) => (Object.hasOwn(tree, key) ? tree[key] : undefined);
    for (const key of keys) {
      const step = Array.isArray(before) ? `[${key}]` : path ? `.${key}` : key;
      difference(own(before, key), own(after, key), path + step, found);
    }
  } else if (before !== after && JSON.stringify(before) !== JSON.stringify(after)) {
    found.push({ path, before, after });
  }
  return found;
}

/** What a version changed, in a few words. */
export function summary(before, after) {
  const paths = difference(before, after)
    .map((one) => one.path)
    .filter((path) => path !== "metadata.resourceVersion" && !path.startsWith("metadata.managedFields"));
  if (!paths.length) return "no visible field";
  return paths.slice(0, 3).join(", ") + (paths.length > 3 ? ` and ${paths.length - 3} more` : "");
}
