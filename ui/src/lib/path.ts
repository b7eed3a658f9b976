// Addresses: of the pages in this program, and of the operations of the API.

// Page is what an address shows.
export interface Page {
  project: string;
  // The segments after the project: ["runs", "wrun_…", "log"].
  segments: string[];
}

// pageOf returns the page at a path below the base; null if the path is not below it.
export function pageOf(base: string, path: string): Page | null {
  const root = base + "/ui/";
  if (!path.startsWith(root)) return null;
  try {
    const [project = "", ...segments] = path.slice(root.length).split("/").filter(Boolean).map(decodeURIComponent);
    return { project, segments };
  } catch {
    return { project: "", segments: [] }; // wrongly encoded
  }
}

// pathOf returns the path of a page.
export function pathOf(base: string, project: string, ...segments: string[]): string {
  return [base + "/ui", project, ...segments].map((s, i) => (i === 0 ? s : encodeURIComponent(s))).join("/");
}

// fill returns the path of an operation, such as /v1/runs/{id}, with its parameters and query.
export function fill(pattern: string, path: Record<string, unknown>, query: Record<string, unknown>): string {
  const filled = pattern.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(path[name])));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const v of Array.isArray(value) ? value : [value]) if (v !== undefined) search.append(name, String(v));
  }
  const text = search.toString();
  return text ? `${filled}?${text}` : filled;
}

// shortId returns the end of an ID, which tells IDs of the same time apart.
export function shortId(id: string): string {
  return id.length > 12 ? "…" + id.slice(-8) : id;
}
