// Saved lists of runs: those of this browser, and those of the project, which colleagues see.
import { computed, signal } from "@preact/signals";
import { call } from "./api";
import { href, project, search } from "./location";
import { kept } from "./settings";
import { formatColumns } from "./lib/columns";

export interface View {
  name: string;
  filter: string;
  // None for the usual ones.
  columns: string[];
  orderBy: "created" | "ended";
}

const text = kept<string>("views", "{}");

const all = computed<Record<string, View[]>>(() => {
  try {
    return JSON.parse(text.value) as Record<string, View[]>;
  } catch {
    return {};
  }
});

// personal are the views of the project that this browser keeps.
export const personal = computed(() => all.value[project.value] ?? []);

// shared are the views that the project keeps, as far as they were read.
export const shared = signal<View[]>([]);
// version changes when they must be read again.
export const version = signal(0);

function put(list: View[]): void {
  text.value = JSON.stringify({ ...all.value, [project.value]: list });
}

export function keep(v: View): void {
  put([...personal.value.filter((o) => o.name !== v.name), v]);
}

export function forget(name: string): void {
  put(personal.value.filter((o) => o.name !== name));
}

export async function share(v: View): Promise<void> {
  const { name, filter, columns, orderBy } = v;
  await call(project.value, "PUT /v1/views/{name}", { path: { name }, body: { filter, columns, orderBy } });
  version.value++;
}

export async function unshare(name: string): Promise<void> {
  await call(project.value, "DELETE /v1/views/{name}", { path: { name } });
  version.value++;
}

// linkOf returns the address of a view.
export function linkOf(v: View): string {
  return href(["runs"], {
    q: v.filter, order: v.orderBy === "ended" ? "ended" : "", columns: v.columns.length > 0 ? formatColumns(v.columns) : "",
  });
}

// isOpen reports whether the page shows a view.
export function isOpen(v: View): boolean {
  const is = (name: string) => search.value.get(name) ?? "";
  return is("q") === v.filter && is("order") === (v.orderBy === "ended" ? "ended" : "") &&
    is("columns") === (v.columns.length > 0 ? formatColumns(v.columns) : "");
}
