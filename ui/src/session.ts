// Who is signed in, and what the role may do.
import { batch, computed, effect, signal } from "@preact/signals";
import * as api from "./api";
import { clock } from "./clock";
import { project } from "./location";
import { Problem } from "./lib/problem";

export const session = signal<api.Session | null>(null);
// lost tells that the server has answered 401 in a project: the page asks for the key and then goes on.
export const lost = signal(false);
export const sessionProblem = signal<Problem | null>(null);

export const role = computed(() => session.value?.projects.find((p) => p.project === project.value)?.role ?? "");

// operated is the project whose admins manage the whole installation.
export const operated = "default";

// operator tells whether the session may manage the whole installation.
export const operator = computed(() => session.value?.projects.some((p) => p.project === operated && p.role === "admin") ?? false);

export type Permission = "write" | "read" | "invoke" | "admin" | "metadata" | "any";

const allowed: Record<Permission, string[]> = {
  admin: ["admin"],
  write: ["admin", "write"],
  read: ["admin", "write", "read"],
  invoke: ["admin", "write", "invoke"],
  metadata: ["admin", "write", "read", "metadata"],
  any: ["admin", "write", "read", "metadata", "invoke"],
};

// may reports whether the role has a permission. The server checks it again.
export function may(p: Permission): boolean {
  return allowed[p].includes(role.value);
}

// showsRuns reports whether pages about runs are shown. What is shown stays while the page asks for a key again.
export function showsRuns(): boolean {
  return lost.value || may("metadata");
}

// needs returns which roles have a permission, in words.
export function needs(p: Permission): string {
  return `This needs a key of the role ${allowed[p].join(", ").replace(/, (?=[^,]*$)/, " or ")}.`;
}

// Whoever goes to a project that is open, or opens this one, is asked for nothing.
effect(() => {
  if (role.value !== "") lost.value = false;
});

export async function load(): Promise<void> {
  try {
    session.value = await api.readSession();
    sessionProblem.value = null;
  } catch (err) {
    sessionProblem.value = err as Problem;
  }
}

// suspect is called when a request was answered 401. A sign-in in another tab changes the cookie under a request, so
// the session is read again before anybody is asked for a key.
export async function suspect(): Promise<void> {
  try {
    const now = await api.readSession();
    batch(() => {
      session.value = now;
      lost.value = role.value === "";
    });
  } catch {
    // The next request tries again.
  }
}

// enter opens the project of a key, or of a code that a key has made. It returns that project.
export async function enter(by: api.Credential): Promise<string> {
  api.forget();
  session.value = await api.signIn(by);
  return session.value.opened ?? "";
}

// entryHours is how long the key lasts with which an operator enters a project.
export const entryHours = 12;

// enterAs opens another project for an operator, by a key of the role that nobody keeps.
export async function enterAs(name: string, role: "admin" | "write" | "read" | "metadata"): Promise<void> {
  const expiresAt = new Date(clock.now() + entryHours * 3_600_000).toISOString();
  const made = await api.call(operated, "POST /v1/keys", { body: { project: name, role, name: "operator in the dashboard", expiresAt } });
  await enter({ key: made.key });
}

export async function leave(): Promise<void> {
  await api.signOut();
  api.forget();
  session.value = null;
  lost.value = false;
  await load();
}
